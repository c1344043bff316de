"""Options from a TOML file: ``--config FILE``. What stands on the command line prevails.

data = "MUTAG"              # for every command that has such an option
root = "data"

[certify]                   # for this command alone; prevails over the lines above
model = "models/mutag"
samples = 5000
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flipproof.errors import InputError

_OPTION = "--config"
_NOISE = frozenset({"keep", "add", "remove"})  # one replaces the others


def file_defaults(arguments: Sequence[str], commands: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the config file of a command line says, as the parser's ``default_map``.

    Args:
        arguments: What was typed after ``flipproof``.
        commands: The parser's commands by name, each with its ``params``.
    """
    path, command = _path(arguments), arguments[0]
    if path is None or command not in commands:
        return {}
    options = {name: _options(parser) for name, parser in commands.items()}
    typed = {argument.partition("=")[0] for argument in arguments}
    typed_keys = {key for key, option in options[command].items() if typed & {*option.opts, *option.secondary_opts}}
    values = _without(_values(_read(path), path, command, options), typed_keys)
    return {
        command: {options[command][key].name: _checked(options[command][key], values[key], path, key) for key in values}
    }


def _path(arguments: Sequence[str]) -> Path | None:
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == _OPTION:
            # without a value the parser complains
            return Path(value) if equals else Path(arguments[place + 1]) if place + 1 < len(arguments) else None
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{_OPTION} must be a file in TOML; {path} cannot be read: {reason} (correct it)") from error


def _options(parser: Any) -> dict[str, Any]:
    """The options of a command by the name that a config file has for them."""
    names = {name: option for option in parser.params for name in option.opts if name.startswith("--")}
    return {_key(name[2:]): option for name, option in names.items() if name not in (_OPTION, "--help")}


def _key(name: str) -> str:
    return name.replace("-", "_")


def _values(content: Mapping[str, Any], path: Path, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says for one command; everything in it must be an option of some command."""
    sections = {name: value for name, value in content.items() if isinstance(value, dict)}
    for section, entries in sections.items():
        if section not in options:
            raise InputError(f"{path}: [{section}] is no command (flipproof has {', '.join(sorted(options))})")
        for key in map(_key, entries):
            if key not in options[section]:
                known = ", ".join(sorted(options[section]))
                raise InputError(f"{path}: {key} is no option of flipproof {section} (it has {known})")
    general = {_key(name): value for name, value in content.items() if name not in sections}
    for key in general:
        if not any(key in known for known in options.values()):
            raise InputError(f"{path}: {key} is no option of any command (see flipproof {command} --help)")
    own = {_key(name): value for name, value in sections.get(command, {}).items()}
    return _without({key: general[key] for key in general if key in options[command]}, set(own)) | own


def _without(values: dict[str, Any], replaced: set[str]) -> dict[str, Any]:
    """The values that nothing more particular replaces."""
    replaced = replaced | (_NOISE if replaced & _NOISE else set())
    return {key: value for key, value in values.items() if key not in replaced}


def _checked(option: Any, value: Any, path: Path, key: str) -> Any:
    """A value of the kind that the option takes."""
    if option.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"{path}: {key} must be true or false; got {value!r}")
        return value
    several = value if isinstance(value, list) and option.multiple else [value]
    if any(isinstance(one, bool) or not isinstance(one, (str, int, float)) for one in several):
        name = key.replace("_", "-")
        raise InputError(
            f"{path}: {key} must be a text or a number; got {value!r} (as on the command line, for --{name})"
        )
    return list(map(str, several)) if option.multiple else str(value)
