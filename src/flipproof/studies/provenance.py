"""Which code made a table: the commit, and a hash of all code that decides numbers; pages of earlier code say so."""

from __future__ import annotations

import ast
import hashlib
import re
import subprocess
from functools import cache
from pathlib import Path

import flipproof

_PACKAGE = Path(flipproof.__file__).parent
_FOLDERS = ("certificates", "classifiers", "defences", "models", "noise", "training")
_STAMP = re.compile(r"^<!-- made from commit \S+, code (\w+) -->$", re.MULTILINE)
_REMARK = "> These numbers are from earlier code; the source of this page names the commit.\n\n"


@cache
def code_hash() -> str:
    """Hash of the code that decides numbers: a comment, a docstring or the layout makes no difference."""
    digest = hashlib.sha256()
    for path in sorted(path for folder in _FOLDERS for path in (_PACKAGE / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
                del node.body[0]
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()} {ast.dump(tree)}".encode())
    return digest.hexdigest()[:16]


@cache
def commit() -> str:
    """The commit of the code, with a mark if it was altered since; of an installed package the version."""
    described = ["git", "-C", str(_PACKAGE), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(described, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return flipproof.__version__


def stamp(made_from: str | None = None, code: str | None = None) -> str:
    """The comment that a page of tables carries; by default of this code."""
    return f"<!-- made from commit {made_from or commit()}, code {code or code_hash()} -->"


def marked(page: str) -> str:
    """The page with the remark that its numbers are of earlier code, if its stamp says so; without it otherwise."""
    plain = page.replace(_REMARK, "")
    stamps = list(_STAMP.finditer(plain))
    if all(one[1] == code_hash() for one in stamps):
        return plain
    end = stamps[0].end()
    return f"{plain[:end]}\n\n{_REMARK}{plain[end:].lstrip()}"
