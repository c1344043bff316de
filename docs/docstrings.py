"""How the site reads docstrings: examples become blocks of code, formulas are typeset, Sphinx's roles become plain names."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
_EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)", re.M)
_FORMULA = re.compile(r"^\.\. math:: (.*(?:\n[ ]+\S.*)*)", re.M)
_SHORT_FORMULA = re.compile(r":math:`([^`]+)`")


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            text = _SHORT_FORMULA.sub(r"$\1$", _FORMULA.sub(_typeset, text))
            obj.docstring.value = _EXAMPLE.sub(_fenced, text)


def _fenced(example: re.Match[str]) -> str:
    code = re.sub(r"  # doctest: .*", "", example[0].rstrip())
    return f"```pycon\n{code}\n```\n"


def _typeset(formula: re.Match[str]) -> str:
    """A formula of its own, one equation per line."""
    equations = " \\\\\n".join(re.split(r",? \\q?quad\s+", formula[1]))
    return f"$$\n\\begin{{gathered}}\n{equations}\n\\end{{gathered}}\n$$\n"
