"""Pages of documentation as tests see them: blocks of code, what is said about them, and a reader who types them in.

Python and shell blocks are run, in order, unless a comment before the block says why not:

    <!-- not run: takes ten minutes -->

A comment before a block of another kind says that it is what the block before it prints, to the letter or but for numbers:

    <!-- output -->
    <!-- output, for instance -->

Commands are run with small sizes, unless a comment says that what they print depends on it:

    <!-- in full -->

A fenced block with a title (``title="labels.csv"``) is a file, and is written. Shell blocks are fenced, or indented lines that
begin with a known program.
"""

import contextlib
import io
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import typer

from flipproof.cli import main
from flipproof.cli.app import parser
from support.command_line import write_graphs

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

_PROGRAMS = ("flipproof", "make", "pip", "python", "ray", "git", "pytest")
_LANGUAGES = {"python": "python", **dict.fromkeys(("bash", "sh", "console", "shell"), "shell")}
COMMANDS = typer.main.get_command(parser()).commands
_TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
_EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])

# what the pages show is sized for use; appended to a command, the last value of an option prevails
_SMALL = {
    "train": {"--epochs": "2"},
    "certify": {"--samples": "200", "--graphs": "5", "--workers": "1"},
    "predict": {"--samples": "200", "--workers": "1"},
    "attack": {"--graphs": "1", "--budget": "1", "--samples": "16", "--confirm-samples": "100"},
}
_FEW_TOPOLOGIES = "topologies:48"
_SMALL_PYTHON = {
    r"fp\.datasets\.topologies\(\)": "fp.datasets.topologies(64)",
    r'time="10m"': 'time="2s", epochs=5, defence="local"',
    r'time="40s"': 'time="2s"',
}


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    kind: str  # python, shell, file or text
    text: str
    line: int  # of the page, for messages
    comment: str = ""  # that stands before it
    title: str = ""  # name of the file that it is

    @property
    def run(self) -> bool:
        return self.kind in ("python", "shell") and not self.comment.startswith("not run: ")

    @property
    def output(self) -> bool:
        return self.comment in ("output", "output, for instance")

    def commands(self) -> list[list[str]]:
        """The lines of a shell block, as a shell reads them."""
        lines = self.text.replace("\\\n", " ").splitlines()
        words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
        return [command for command in words if command]


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    return list(_blocks(page.read_text(encoding="utf-8").splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    comment, number = "", 0
    while number < len(lines):
        line, start = lines[number], number + 1
        number += 1
        if fence := re.fullmatch(r"```(\w*)(.*)", line):
            end = lines.index("```", number)
            title = re.search(r'title="([^"]+)"', fence[2])
            kind = "file" if title else _LANGUAGES.get(fence[1], "text")
            yield Block(kind, "\n".join(lines[number:end]) + "\n", start, comment, title[1] if title else "")
            number, comment = end + 1, ""
        elif line.startswith("    ") and (start == 1 or not lines[start - 2].strip()):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                number += 1
            text = "\n".join(inner[4:] for inner in lines[start - 1 : number]).rstrip() + "\n"
            yield Block("shell" if text.split()[0] in _PROGRAMS else "text", text, start, comment)
            comment = ""
        elif said := re.fullmatch(r"<!-- (.*) -->", line):
            comment = said[1]
        elif line.strip():
            comment = ""


def complaint(words: list[str]) -> str | None:
    """What is wrong with a command that is not run: a command, option, target, extra or script that does not exist."""
    program, *arguments = words
    if program == "flipproof":
        names = [word for word in arguments if not word.startswith("-")]
        command = COMMANDS.get(names[0]) if names else None
        if names and command is None:
            return f"there is no command flipproof {names[0]}"
        known = {
            name for option in (command.params if command else []) for name in (*option.opts, *option.secondary_opts)
        }
        typed = {word.strip("[]").partition("=")[0] for word in arguments if word.strip("[").startswith("-")}
        strange = typed - known - {"--help", "-h", "--version", "--install-completion", "--show-completion"}
        return f"flipproof {' '.join(names[:1])} has no option {min(strange)}" if strange else None
    if program == "make":
        missing = {word for word in arguments if "=" not in word} - _TARGETS
        return f"the Makefile has no target {min(missing)}" if missing else None
    if program == "pip":
        extras = {
            name for word in re.findall(r"flipproof\[([a-z,]+)\]", " ".join(arguments)) for name in word.split(",")
        }
        return f"there is no extra {min(extras - _EXTRAS)}" if extras - _EXTRAS else None
    if program in ("python", "pytest"):
        files = [word.partition("::")[0] for word in arguments if "/" in word and not word.startswith("-")]
        return next((f"there is no file {file}" for file in files if not (ROOT / file).exists()), None)
    return None


def prose_commands(page: Path) -> list[list[str]]:
    """The commands that a page names between backquotes in its running text."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    named = [span for span in spans if re.match(r"(flipproof|make) [a-z]", span)]
    short = [f"flipproof {span}" for span in spans if re.match(rf"({'|'.join(COMMANDS)}) --", span)]
    return [re.sub(r"[|,]", " ", span).split() for span in (*named, *short)]


@dataclass
class Reader:
    """Someone who types in a page's blocks, one after the other, in a folder of their own.

    At the start it holds what a reader may have: graphs of their own in ``my_graphs``, a TU data set in ``data``.
    """

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    printed: str = ""
    namespace: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})

    def read(self, page: Path) -> None:
        """Run the blocks that can be run, write the files, compare the outputs."""
        write_graphs(self.folder / "my_graphs")
        _write_tu(self.folder / "data" / "MUTAG")
        self.monkeypatch.chdir(self.folder)
        self.monkeypatch.syspath_prepend(str(self.folder))
        before = set(sys.modules)
        try:
            for block in blocks_of(page):
                self.type(block, f"{page.name}, line {block.line}")
        finally:
            for name in set(sys.modules) - before:
                if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(self.folder)):
                    del sys.modules[name]

    def type(self, block: Block, where: str) -> None:
        """Do what one block asks for."""
        if block.kind == "file":
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.run and block.kind == "python":
            text = block.text
            for shown, small in _SMALL_PYTHON.items():
                text = re.sub(shown, small, text)
            with _printing() as printed:
                exec(compile(text, where, "exec"), self.namespace)
            self.printed = "".join(printed)
        elif block.run:
            smaller = block.comment != "in full"
            self.printed = "".join(self._call(words, where, smaller=smaller) for words in block.commands())
        elif block.output:
            exact = block.comment == "output"
            said, printed = (_lines(text) if exact else _shape(text) for text in (block.text, self.printed))
            assert printed == said, f"{where}: the page and the program differ"

    def _call(self, words: list[str], where: str, *, smaller: bool = True) -> str:
        assert words[0] == "flipproof", f"{where}: {words[0]} is not run by the tests (write <!-- not run: why -->)"
        words, target = (words[: words.index(">")], words[-1]) if ">" in words else (words, None)
        self.monkeypatch.setattr(sys, "argv", [*words, *(_smaller(words) if smaller else [])])
        err = io.StringIO()
        with _printing() as printed, contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, f"{where}: {shlex.join(words)}: {err.getvalue()}"
        if target is None:
            return "".join(printed)
        (self.folder / target).write_text("".join(printed), encoding="utf-8")
        return ""


@contextlib.contextmanager
def _printing() -> Iterator[list[str]]:
    """Standard output, bytes included; the text is in the list afterwards."""
    stream, printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True), []
    with contextlib.redirect_stdout(stream):
        yield printed
    stream.seek(0)
    printed.append(stream.read())


def _smaller(words: list[str]) -> list[str]:
    """Options that make a command quick."""
    wanted = dict(_SMALL.get(words[1], {}))
    if "topologies" in words:
        wanted["--data"] = _FEW_TOPOLOGIES
    if any("voting" in word or "local" in word for word in words):  # these take no samples
        wanted.pop("--samples", None)
    return [token for option in wanted.items() for token in option]


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _shape(text: str) -> list[str]:
    """The text with numbers, and what follows from them, left out."""
    bare = re.sub(r"-?\.?\d[\d.,]*(-\.?\d+)?", "0", re.sub("━+|─+", "─", text)).replace("flips", "flip")
    return [" ".join(line.split()) for line in _lines(bare)]


def _write_tu(folder: Path) -> None:
    """24 graphs in TU's text files: rings, and rings with a chord; a node's label says whether the chord ends there."""
    folder.mkdir(parents=True)
    rows: dict[str, list[object]] = {"A": [], "graph_indicator": [], "graph_labels": [], "node_labels": []}
    for graph in range(24):
        size, first = 6 + graph % 5, len(rows["graph_indicator"]) + 1
        pairs = [(node, (node + 1) % size) for node in range(size)] + [(0, 3)] * (graph % 2)
        rows["A"] += [f"{first + u}, {first + v}" for pair in pairs for u, v in (pair, pair[::-1])]
        rows["graph_indicator"] += [graph + 1] * size
        rows["graph_labels"].append(graph % 2)
        rows["node_labels"] += [int(node % 3 == 0) for node in range(size)]
    for name, values in rows.items():
        (folder / f"{folder.name}_{name}.txt").write_text("".join(f"{value}\n" for value in values), encoding="utf-8")
