"""The README and every page of the documentation: their code runs, what they name exists, their links lead somewhere."""

import importlib
import json
import re
from typing import Any

import pytest

import flipproof
from support.browser import chromium, opened
from support.pages import COMMANDS, PAGES, ROOT, Block, Reader, blocks_of, complaint, prose_commands

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
NAMES = {page: page.name for page in PAGES}
RUN = [page for page in PAGES if any(block.run for block in blocks_of(page))]


@pytest.mark.parametrize("page", RUN, ids=NAMES.get)
def test_every_block_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    Reader(tmp_path, monkeypatch).read(page)


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_what_is_not_run_names_what_exists(page):
    not_run = [block for block in blocks_of(page) if block.kind in ("python", "shell") and not block.run]
    for block in not_run:
        if block.kind == "python":
            compile(block.text, f"{page.name}, line {block.line}", "exec")
    typed = [words for block in not_run if block.kind == "shell" for words in block.commands()]
    for words in [*typed, *prose_commands(page)]:
        assert complaint(words) is None, f"{page.name}: {' '.join(words)}: {complaint(words)}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_code_stands_where_it_is_seen_and_links_lead_somewhere(page):
    for block in blocks_of(page):
        hidden = block.kind == "text" and not block.output and re.match(r"(import|from) \w+|>>> ", block.text)
        assert not hidden, f"{page.name}, line {block.line}: Python that no test runs (fence it with ```python)"
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target


def test_every_test_that_a_page_names_exists():
    """A statement's proof can be followed to the test that would notice if it were false."""
    names = {
        str(path.relative_to(ROOT / "tests")): set(re.findall(r"^def (test_\w+)", path.read_text(), re.M))
        for path in (ROOT / "tests").rglob("test_*.py")
    }
    cited = 0
    for page in [*PAGES, *(ROOT / "docs").glob("*/*.md")]:
        for file, test in re.findall(r"`(?:tests/)?([\w/]*test_\w+\.py)(?:::(test_\w+))?", page.read_text()):
            assert file in names, f"{page.name}: {file}"
            assert not test or test in names[file], f"{page.name}: {file}::{test}"
            cited += 1
    assert cited > 20


def test_the_check_of_commands_finds_faults():
    faults = {
        "flipproof certfy --model m": "certfy",
        "flipproof certify --modle m": "--modle",
        "make reprodce": "reprodce",
        "pip install flipproof[nothing]": "nothing",
        "python benchmarks/nothing.py": "benchmarks/nothing.py",
    }
    for command, fault in faults.items():
        assert fault in str(complaint(command.split()))
    for command in ("flipproof certify --model m --out r", "make reproduce OUT=x", "flipproof --version"):
        assert complaint(command.split()) is None


def test_the_reader_notices_what_does_not_run_or_differs(tmp_path, monkeypatch):
    pages = {
        "unknown command": ("    flipproof certfy\n", "certfy"),
        "not a command of ours": ("    make test\n", "not run by the tests"),
        "other output": ("```python\nprint(1)\n```\n\n<!-- output -->\n\n    2\n", "differ"),
        "other shape": ("```python\nprint('a 1')\n```\n\n<!-- output, for instance -->\n\n    b 2\n", "differ"),
    }
    for name, (text, fault) in pages.items():
        page = tmp_path / f"{name}.md"
        page.write_text(f"# Page\n\n{text}")
        with pytest.raises(AssertionError, match=fault):
            Reader(tmp_path / name, monkeypatch).read(page)
    page.write_text("```python\nprint('a 1')\n```\n\n<!-- output, for instance -->\n\n    a 2\n")
    Reader(tmp_path / "same shape", monkeypatch).read(page)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"^ *- (?:[^#\n]+: )?(\w+\.md)$", navigation, re.M)
    assert sorted(listed) == sorted(page.name for page in PAGES if page.parent == ROOT / "docs")


def test_the_page_of_the_command_line_names_every_command():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`{name}`" not in text.partition("## ")[0]] == []


def test_the_api_reference_has_every_public_name():
    pages = sorted((ROOT / "docs" / "api").glob("*.md"))
    paths = [path for page in pages for path in re.findall(r"^::: ([\w.]+)$", page.read_text(encoding="utf-8"), re.M)]
    assert len(paths) == len(set(paths)), "a name stands on one page alone"
    objects = {path: _imported(path) for path in paths}
    public: dict[str, Any] = {name: getattr(flipproof, name) for name in flipproof.__all__ if name != "__version__"}
    for module in ("attacks", "datasets", "defences", "engines", "models", "plot"):
        names = [name for name in public.pop(module).__all__ if name != "NAMES"]
        public |= {f"{module}.{name}": getattr(getattr(flipproof, module), name) for name in names}
    missing = [name for name, value in public.items() if not any(value is other for other in objects.values())]
    assert not missing, "docs/api/*.md lack these"
    overview = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert [page.name for page in pages if f"(api/{page.name})" not in overview] == []


def _imported(path):
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_the_notebooks_run(notebook, tmp_path, monkeypatch):
    cells = [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    executed = [cell["execution_count"] for cell in cells]
    assert executed == list(range(1, len(cells) + 1)), "execute it in place: make notebook"
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, monkeypatch)
    for number, cell in enumerate(cells, 1):
        # small sizes: what the notebook shows was made with its own
        source = re.sub(r"^(GRAPHS, EPOCHS, SAMPLES) = .*$", r"\1 = 48, 2, 100", "".join(cell["source"]), flags=re.M)
        magic, _, commands = source.partition("\n")
        block = Block("shell", commands, number) if magic == "%%bash" else Block("python", source, number)
        reader.type(block, f"notebook, cell {number}")


KATEX = ROOT / "docs" / "katex"
FENCED = re.compile(r"^```.*?^```$|(?<![`\w])`[^`\n]+`", re.S | re.M)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(\S(?:[^$\n]*\S)?)\$", re.S)


def formulas(text):
    return [shown or inline for shown, inline in FORMULA.findall(FENCED.sub("", text))]


def test_every_formula_can_be_typeset(tmp_path):
    pages = {page.name: formulas(page.read_text(encoding="utf-8")) for page in (ROOT / "docs").rglob("*.md")}
    assert sum(map(len, pages.values())) > 100
    page = tmp_path / "formulas.html"
    page.write_text("<!doctype html><link rel='icon' href='data:,'>")
    refused = """([pages, source]) => {
        (0, eval)(source);
        return pages.flatMap(([page, formulas]) => formulas.flatMap((formula) => {
            try { katex.renderToString(formula, { throwOnError: true, displayMode: true }); return []; }
            catch (error) { return [`${page}: ${formula}: ${error.message}`]; }
        }));
    }"""
    source = (KATEX / "katex.min.js").read_text(encoding="utf-8")
    with chromium() as browser, opened(browser, page) as shown:
        assert shown.page.evaluate(refused, [list(pages.items()), source]) == []
        broken = [["made up", ["\\frac{1"]]]
        assert len(shown.page.evaluate(refused, [broken, source])) == 1  # the check notices


def test_katex_has_the_fonts_that_its_style_names_and_asks_for_nothing_else():
    style = (KATEX / "katex.min.css").read_text(encoding="utf-8")
    named = set(re.findall(r"url\(([^)]+)\)", style))
    assert named == {f"fonts/{font.name}" for font in (KATEX / "fonts").iterdir()}
    assert "Permission is hereby granted" in (KATEX / "LICENSE").read_text(encoding="utf-8")
    assert "http" not in style
