"""Pieces of pages: text stays text."""

from __future__ import annotations

import json

import pytest

from flipproof.report.html import embedded_json, html_table, policy


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "a\u2028b", "&amp;", 'say "x"', "\\u003c"])
def test_embedded_json_stays_inside_its_element(text: str) -> None:
    embedded = embedded_json({text: [text]})
    assert not set(embedded) & set("<>&\u2028\u2029")
    assert json.loads(embedded) == {text: [text]}


def test_cells_are_escaped_and_marked() -> None:
    table = html_table([["<a>"], ["yes"], ["<b>"]], classes={"yes": "good"})
    assert '<th scope="col">&lt;a&gt;</th>' in table
    assert '<td class="good">yes</td>' in table
    assert "<td>&lt;b&gt;</td>" in table


def test_a_page_without_a_script_allows_none() -> None:
    assert "script-src 'none'" in policy("a {}")
    assert policy("a {}", "1").count("sha256-") == 2
