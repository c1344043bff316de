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

__all__ = ["expanded"]

_OPTION = "--config"
_NOISE = frozenset({"keep", "add", "remove"})  # one replaces the others


def expanded(arguments: Sequence[str], commands: Mapping[str, Any]) -> list[str]:
    """The command line with the options of its config file written out, before those that were typed.

    Args:
        arguments: What was typed after ``flipproof``.
        commands: The parser's commands by name, each with its ``params``.
    """
    path = _given(arguments)
    if path is None or arguments[0] not in commands:
        return list(arguments)
    command = arguments[0]
    options = {name: _options(parser) for name, parser in commands.items()}
    values = _values(_read(path), path, command, options)
    typed = {argument.partition("=")[0] for argument in arguments}
    typed_keys = {key for key, option in options[command].items() if typed & {*option.opts, *option.secondary_opts}}
    tokens: list[str] = []
    for key, value in _without(values, typed_keys).items():
        tokens += _tokens(options[command][key], value, f"{path}: {key}")
    return [command, *tokens, *arguments[1:]]


def _given(arguments: Sequence[str]) -> Path | None:
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
    found: dict[str, Any] = {}
    for option in parser.params:
        names = [name for name in option.opts if name.startswith("--")]
        found |= {_key(name): option for name in names if name not in (_OPTION, "--help")}
    return found


def _key(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _values(
    content: dict[str, Any], path: Path, command: str, options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """What the file says for one command; everything in it must be an option of some command."""
    general: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in content.items():
        key = name.replace("-", "_")
        if isinstance(value, dict):
            if name not in options:
                raise InputError(f"{path}: [{name}] is no command (flipproof has {', '.join(sorted(options))})")
            section = {inner.replace("-", "_"): setting for inner, setting in value.items()}
            for inner in section:
                if inner not in options[name]:
                    raise InputError(
                        f"{path}: {inner} is no option of flipproof {name} (it has {', '.join(sorted(options[name]))})"
                    )
            if name == command:
                own = section
        elif not any(key in known for known in options.values()):
            raise InputError(f"{path}: {name} is no option of any command (see flipproof {command} --help)")
        elif key in options[command]:
            general[key] = value
    return _without(general, set(own)) | own


def _without(values: dict[str, Any], replaced: set[str]) -> dict[str, Any]:
    """The values that nothing more particular replaces."""
    replaced = replaced | (_NOISE if replaced & _NOISE else set())
    return {key: value for key, value in values.items() if key not in replaced}


def _tokens(option: Any, value: Any, where: str) -> list[str]:
    """An option and its value as they would be typed."""
    name = next(name for name in option.opts if name.startswith("--"))
    if option.is_flag:
        if not isinstance(value, bool):
            raise InputError(f"{where} must be true or false; got {value!r}")
        if value:
            return [name]
        return list(option.secondary_opts[:1])
    several = value if isinstance(value, list) else [value]
    if (isinstance(value, list) and not option.multiple) or any(
        isinstance(one, bool) or not isinstance(one, (str, int, float)) for one in several
    ):
        raise InputError(f"{where} must be a text or a number; got {value!r} (as on the command line, for {name})")
    return [token for one in several for token in (name, str(one))]
