"""How the site reads docstrings: examples become blocks of code, Sphinx's roles plain names."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
_EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)", re.M)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(_fenced, text)


def _fenced(example: re.Match[str]) -> str:
    code = re.sub(r"  # doctest: .*", "", example[0].rstrip())
    return f"```pycon\n{code}\n```\n"
