"""The page as text: what it says in words, and what it never lets in."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from flipproof.report import report_page as page_module
from flipproof.report.content import CertifiedRun
from flipproof.report.reading import read_run
from flipproof.report.report_page import report_page


@pytest.fixture(scope="module")
def even(folder: Path) -> CertifiedRun:
    return read_run(folder / "even", "even")


def lead(run: CertifiedRun) -> str:
    """The headline, without its tags."""
    found = re.search(r'<p class="lead">(.*?)</p>', report_page([run]))
    assert found is not None
    return re.sub(r"<[^>]+>", "", found[1])


def test_the_first_sentence_compares_with_a_network_that_ignores_edges(even: CertifiedRun) -> None:
    assert lead(replace(even, no_line="")).startswith(
        "This was not compared with a network that ignores edges: no training"
    )
    without = lead(replace(even, no_line="the data are gone <b>", majority=12))
    assert without.startswith("This was not compared with a network that ignores edges: the data are gone &lt;b&gt;.")
    assert "This is no better than always naming the most frequent class, which is right on 12 of 12 graphs" in without
    best = int(even.right_radii().max())
    assert lead(replace(even, line=0)).startswith(f"This beats a network that ignores edges under any {best} flips")
    assert lead(replace(even, line=12)).startswith(
        "This is no better than a network that ignores edges, which is right on 12"
    )
    for line in range(13):
        run = replace(even, line=line)
        assert ("only as long as nobody attacks" in lead(run)) == (run.lead_over(line) == 0)
        assert f"right on {line} of 12 graphs" in lead(run)


def test_certificates_that_hold_with_certainty(even: CertifiedRun) -> None:
    """No alpha, removals cost less."""
    rows = [row | {"alpha": 0.0, "removes_radius": row["radius"] + 1} for row in even.rows]
    settings = replace(even.settings, defence={"name": "voting", "groups": 3}, question={})
    certain = replace(even, rows=rows, settings=settings, readings={"voting": even.readings["influence"]})
    assert (certain.defence, certain.symmetric) == ("voting (groups 3)", False)
    assert "These proofs hold with certainty" in lead(certain)
    assert "The voting classifier is right on" in lead(certain)


def test_every_setting_of_the_question_is_told(even: CertifiedRun) -> None:
    made = report_page([even]).split('id="made"')[1]
    for text in (
        "smoothing (keep 0.8)",
        '<td>samples</td><td class="number">400</td>',
        "<td>simultaneous</td><td>no</td>",
    ):
        assert text in made


def test_the_page_asks_for_nothing_from_elsewhere(even: CertifiedRun) -> None:
    page = report_page([even])
    assert page.count("http://") == page.count('"http://www.w3.org/2000/svg"') == 1
    assert "https://" not in page
    assert "default-src &#39;none&#39;" in page
    assert len(page) < 150_000


def test_large_graphs_are_not_drawn(even: CertifiedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(key: str) -> list[int]:
        return [one[key] for one in page_module.script_data([even])["graphs"] if one["edges"] is not None]

    assert len(drawn("nodes")) == 12
    monkeypatch.setattr(page_module, "_DRAWN_NODES", 7)
    assert set(drawn("nodes")) == {6, 7}
    monkeypatch.setattr(page_module, "_ALL_EDGES", 30)
    assert 0 < sum(drawn("count")) <= 30
