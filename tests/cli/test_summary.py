"""The summary of a run: what stands on the screen."""

from __future__ import annotations

from typing import Any

import pytest

import flipproof as fp
from flipproof.certificates.metrics import share_interval
from flipproof.cli.certify_command import shown_summary, summarise
from flipproof.cli.options import OutputOptions, Result, run_command
from support.runs import settings_of

SMOOTH = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), fp.EdgeNoise(add=0.1, remove=0.2), num_classes=2)


def row(**changes: Any) -> dict[str, Any]:
    base = {"label": 0, "predicted": 0, "radius": 1, "adds_radius": 1, "removes_radius": 3}
    return {**base, "method": "votes", "alpha": 0.01, "samples": 10, **changes}


def test_the_summary_counts_right_and_certified_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(),
        row(predicted=1, radius=5),
        row(predicted=None, radius=-1, adds_radius=-1, removes_radius=-1),
        row(radius=2, adds_radius=2),
    ]
    summary = summarise(rows, settings_of(SMOOTH, {0: fp.Graph(2, [])}))
    assert [summary["certified_accuracy"][r] for r in "0123"] == [0.5, 0.5, 0.25, 0]
    assert [summary["certified_accuracy_additions"][r] for r in "0123"] == [0.5, 0.5, 0.25, 0]
    assert [summary["certified_accuracy_removals"][r] for r in "0123"] == [0.5, 0.5, 0.5, 0.5]
    low, high = share_interval([2, 2, 1, 0], 4)
    for r, ends in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        assert summary["intervals"]["certified_accuracy"][str(r)] == pytest.approx(ends, abs=1e-6)
    assert (summary["abstained"], summary["average_certified_radius"]) == (1, 0.75)
    run_command(lambda options: Result({}, shown_summary({"run": "folder", **summary})), OutputOptions())
    shown = capsys.readouterr().out
    assert shown.count(".07-.93") == 8  # 2 of 4, at each of those radii
    assert max(len(line) for line in shown.splitlines() if "│" in line) <= 80
    assert "own on made by hand: certified accuracy of 4 graphs" in shown
    assert "defence add 0.1 remove 0.2, method votes, 10 samples, alpha 0.01; average certified radius 0.75" in shown
    assert "abstained on 1" in shown
