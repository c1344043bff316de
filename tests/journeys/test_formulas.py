"""The formulas of the documentation: every one can be typeset by the KaTeX that comes with the site, which fetches nothing."""

from __future__ import annotations

import re
from pathlib import Path

from support.browser import chromium, opened
from support.pages import ROOT

KATEX = ROOT / "docs" / "katex"
FENCED = re.compile(r"^```.*?^```$|(?<![`\w])`[^`\n]+`", re.S | re.M)
FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(\S(?:[^$\n]*\S)?)\$", re.S)


def formulas(text: str) -> list[str]:
    return [shown or inline for shown, inline in FORMULA.findall(FENCED.sub("", text))]


def test_every_formula_can_be_typeset(tmp_path: Path) -> None:
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


def test_katex_has_the_fonts_that_its_style_names_and_asks_for_nothing_else() -> None:
    style = (KATEX / "katex.min.css").read_text(encoding="utf-8")
    named = set(re.findall(r"url\(([^)]+)\)", style))
    assert named == {f"fonts/{font.name}" for font in (KATEX / "fonts").iterdir()}
    assert "Permission is hereby granted" in (KATEX / "LICENSE").read_text(encoding="utf-8")
    assert "http" not in style
