"""What the documentation site does on top of mkdocs: the options of all commands, links to sources, nothing from the network."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.exceptions import PluginError

from flipproof.cli.app import parser
from flipproof.report.templates import references

_OPTIONS = "<!-- options of all commands -->"
_REFERENCES = "<!-- references -->"
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//[^"]+"|<link[^>]+href="(?:https?:)?//[^"]+\""""
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Options are read from the command line itself; links out of the documentation keep their text alone."""
    for mark, text in ((_OPTIONS, _commands), (_REFERENCES, _references)):
        if mark in markdown:
            markdown = markdown.replace(mark, text())
    up = page.file.src_uri.count("/") + 1
    return re.sub(rf"\[([^\]]+)\]\((?:\.\./){{{up}}}[^)]+\)", r"\1", markdown)


def _references() -> str:
    return "```bibtex\n" + "\n\n".join(references().values()) + "\n```"


def on_post_build(config: Any, **_: Any) -> None:
    """The site must open offline: a page that loads something from elsewhere ends the build."""
    for page in Path(config.site_dir).rglob("*.html"):
        for element in _LOADED.findall(page.read_text(encoding="utf-8")):
            if 'rel="canonical"' not in element:
                raise PluginError(f"{page} loads something from the network: {element}")


def _commands() -> str:
    commands = typer.main.get_command(parser()).commands  # type: ignore[attr-defined]
    return "\n".join(_described(name, command) for name, command in commands.items())


def _described(name: str, command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    about, _, example = (re.sub(r"\[/?bold\]", "", part).strip() for part in text.partition("[bold]Example:[/bold]"))
    rows = "\n".join(_row(option) for option in command.params if "--help" not in option.opts)
    shown = f"    {example}\n\n" if example else ""
    return f"### {name}\n\n{about}\n\n{shown}| option | | default |\n|---|---|---|\n{rows}\n"


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    if option.param_type_name == "argument":
        names = f"`{option.metavar or option.name}`"
    if option.secondary_opts:
        names += f", `{option.secondary_opts[0]}`"
    empty = option.default is None or option.default is False or option.default in ("", [])
    default = "" if empty else f"`{option.default}`"
    default = "required" if option.required else default
    return f"| {names} | {(option.help or '').replace('|', '/')} | {default} |"
