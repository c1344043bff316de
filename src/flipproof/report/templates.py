"""Templates of pages and tables. A page stands alone: style, script and data are inside, and it makes no request to anywhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from flipproof import __version__
from flipproof.report.wording import wording
from flipproof.runs.run_folder import CertifySettings

Cell = str | tuple[str, str]
"""Of a table in LaTeX: a value, or a value and its interval, which stands below it."""

_LONG = 24  # characters; a longer text that begins with a digit is not a number
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("flipproof.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.tests["number"] = lambda text: re.match(r"[-+−<]?\d", text) is not None and len(text) < _LONG
    environment.filters["oneline"] = lambda text: Markup(" ".join(text.split()))
    environment.globals["asset"] = lambda name: Markup(asset(name))
    return environment


def rendered(template: str, **values: Any) -> str:
    """A template of this package, filled; in HTML all text is escaped."""
    return _environment().get_template(template).render(values)


def asset(name: str) -> str:
    return files("flipproof.report").joinpath(name).read_text(encoding="utf-8")


def policy(style: str, script: str) -> str:
    """The content security policy of a page that may use this style and this script, and nothing else."""
    digests = {"style": hashlib.sha256(style.encode()), "script": hashlib.sha256(script.encode())}
    allowed = [f"{kind}-src 'sha256-{base64.b64encode(one.digest()).decode()}'" for kind, one in digests.items()]
    return "; ".join(["default-src 'none'", "img-src data:", *allowed, "base-uri 'none'", "form-action 'none'"])


def inline_svg(stem: Path) -> str:
    """A figure's SVG for the inside of a page; its ids are made unique, so that several pictures can share one page."""
    text = stem.with_suffix(".svg").read_text(encoding="utf-8")
    return re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{stem.name}-", text[text.index("<svg") :])


def markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a compact table whose first row is its head."""
    lines = ["|" + "|".join(cell.replace("|", "\\|").replace(" ± ", "±") for cell in row) + "|" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def latex_text(text: str) -> str:
    return re.sub(r"\s+", " ", "".join(_SPECIAL.get(character, character) for character in text))


def latex_table(
    head: Sequence[str], groups: Sequence[Sequence[Sequence[Cell]]], *, caption: str, label: str, texts: int = 1
) -> str:
    r"""A floating table with rules above, between and below its groups of rows; cells and caption are LaTeX already.

    The first ``texts`` columns are set flush left, the others flush right. The interval of a cell stands below its value: side
    by side, seven columns would not fit on a page. It needs ``\usepackage{booktabs}``.
    """
    columns = "l" * texts + "r" * (len(head) - texts)
    return rendered("table.tex", head=head, groups=groups, caption=caption, label=label, columns=columns)


def references() -> dict[str, str]:
    """All BibTeX entries by key, in the order of ``references.bib``."""
    entries = re.split(r"\n\n(?=@)", asset("references.bib").strip().replace("VERSION", __version__))
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries}


def bibtex(runs: Sequence[CertifySettings]) -> str:
    """The entries for flipproof, and for what the defences of these runs rest on."""
    keys = dict.fromkeys(["flipproof", *(key for run in runs for key in wording(run.defence["name"]).references)])
    known = references()
    return "\n\n".join(known[key] for key in keys) + "\n"
