"""Pieces of HTML pages that stand alone: style, script and data inside, no request to anywhere."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

__all__ = ["asset", "embedded_json", "html_table", "inline_svg", "policy"]

_LONG = 24  # characters; a longer text that begins with a digit is not a number


def asset(name: str) -> str:
    """A style sheet, script or template that comes with the package."""
    return files("flipproof.report").joinpath(name).read_text(encoding="utf-8")


def policy(style: str, script: str = "") -> str:
    """The content security policy of a page that may use this style and this script, and nothing else."""
    allowed = [f"style-src {_hash(style)}", f"script-src {_hash(script)}" if script else "script-src 'none'"]
    return "; ".join(["default-src 'none'", "img-src data:", *allowed, "base-uri 'none'", "form-action 'none'"])


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def inline_svg(stem: Path) -> str:
    """A figure's SVG for the inside of a page; its ids are made unique, so that several pictures can share one page."""
    text = stem.with_suffix(".svg").read_text(encoding="utf-8")
    drawing = text[text.index("<svg") :]
    return (
        drawing.replace('id="', f'id="{stem.name}-')
        .replace("url(#", f"url(#{stem.name}-")
        .replace('href="#', f'href="#{stem.name}-')
    )


def embedded_json(value: Any) -> str:
    """JSON that is safe inside a script element, whatever text it contains."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def html_table(rows: Sequence[Sequence[str]], *, classes: Mapping[str, str] | None = None) -> str:
    """A table whose first row is its head, with all text escaped; ``classes`` maps a cell's text to its CSS class."""
    known = classes or {}
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in rows[0])
    body = "".join(f"<tr>{''.join(_cell(cell, known.get(cell)) for cell in row)}</tr>" for row in rows[1:])
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str, kind: str | None) -> str:
    if kind is None and re.match(r"[-+−<]?\d", text) and len(text) < _LONG:
        kind = "number"
    marked = "" if kind is None else f' class="{kind}"'
    return f"<td{marked}>{html.escape(text)}</td>"
