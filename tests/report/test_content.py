"""The numbers of a report: curves, counts, rounding, and what is compared with the certificates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flipproof as fp
from flipproof.attacks.search import AttackResult
from flipproof.report.content import CertifiedRun, curve_range, percent
from flipproof.report.reading import read_run
from flipproof.runs.certifying import read_evidence
from flipproof.runs.run_folder import CertifySettings, open_run


@pytest.fixture(scope="module")
def even(folder: Path) -> CertifiedRun:
    return read_run(folder / "even", "even")


def test_curves_are_the_librarys_certified_accuracy(folder: Path, even: CertifiedRun) -> None:
    with open_run(folder / "even", CertifySettings) as run:
        votes = [evidence for _, evidence in read_evidence(run)]
    certificates = [evidence.certify(alpha=0.001) for evidence in votes]
    accuracy = fp.certified_accuracy(certificates, [one.graph.label for one in votes], range(5))
    curve = even.curve(top=4)
    assert curve.accuracy.tolist() == accuracy.tolist()
    assert curve.certified[0] == sum(bool(row["correct"]) for row in even.rows)
    assert curve == even.curve("influence", "radius", top=4, name="even")


def test_a_grid_of_additions_and_removals_contains_what_the_radius_says(folder: Path) -> None:
    for name in ("even", "uneven"):
        run = read_run(folder / name, name)
        counts = run.add_remove_counts()
        by_flips, alone = (run.curve(attacker=attacker, top=20).certified for attacker in ("radius", "removes_radius"))
        assert counts[0, 0] == by_flips[0]
        assert tuple(counts[0]) == alone[: counts.shape[1]]
        for adds, removes in [(0, 1), (1, 0), (1, 1)]:
            assert counts[adds, removes] >= by_flips[adds + removes]


def test_an_edge_blind_run_has_no_end(folder: Path) -> None:
    run = read_run(folder / "blind", "blind")
    assert run.edge_blind
    assert run.defence == "edge-blind"
    assert curve_range([run]) == 10
    assert set(run.curve(top=10).certified) == {6}


@pytest.mark.parametrize(
    ("count", "total", "text"),
    [
        (29, 40, "73%"),  # 72.5: half up, never half to even
        (1, 8, "13%"),
        (1, 16, "6%"),
        (0, 40, "0%"),
        (40, 40, "100%"),
        (1, 1000, "0.1%"),
        (1, 100_000, "0.1%"),  # not 0: there is one
        (99_999, 100_000, "99.9%"),  # not 100: one is missing
        (1, 160, "0.6%"),
    ],
)
def test_one_rounding(count: int, total: int, text: str) -> None:
    assert percent(count, total) == text


def test_the_lead_over_a_network_that_ignores_edges(even: CertifiedRun) -> None:
    for line in range(13):
        lead = even.lead_over(line)
        counts = even.curve(top=40).certified
        assert lead == max((r for r, count in enumerate(counts) if count > line), default=-1)


def attacked(run: CertifiedRun, size: int, *, success: bool = True, role: str = "defended") -> CertifiedRun:
    """The run with an attack of so many flips on its second graph."""
    row, graph = run.rows[1], run.graphs[run.rows[1]["graph"]]
    pairs = [(0, node) for node in range(1, 9)][:size]
    flips = tuple(pairs)
    result = AttackResult(
        "greedy", graph.flipped(flips), flips, row["predicted"], success, True, 0.001, 5, 1.0, -1.0, 10
    )
    return replace(run, attacks={row["graph"]: {role: result}})


def test_an_attack_within_the_radius_is_named(even: CertifiedRun) -> None:
    radius = even.rows[1]["radius"]
    assert radius >= 1
    assert attacked(even, radius).broken == [1]
    assert attacked(even, radius + 1).broken == []
    assert attacked(even, radius, success=False).broken == []
    assert attacked(even, radius, role="base").broken == []  # the certificate is not about the base model
    rows = [{**row, "predicted": 0} for row in even.rows]
    assert replace(attacked(even, radius), rows=rows).broken == []  # nor about another class than its own


def test_accuracy_under_attack_counts_the_graphs_attacked(even: CertifiedRun) -> None:
    run = attacked(even, 2)
    assert run.under_attack["defended"].certified == (1, 1, 0, 0, 0, 0)
    assert run.under_attack["defended"].graphs == 1
    assert attacked(even, 2, success=False).under_attack["defended"].certified == (1,) * 6


def test_labels_that_are_missing_count_as_not_right(even: CertifiedRun) -> None:
    rows = [{**row, "label": None} for row in even.rows]
    assert not np.any(replace(even, rows=rows).right_radii() >= 0)
