"""The summary of a run: what stands on the screen."""

from __future__ import annotations

from typing import Any

import pytest
from flipproof.commands.summary import print_summary, summarise


def row(**changes: Any) -> dict[str, Any]:
    base = {"correct": True, "predicted": 0, "radius": 1, "adds_radius": 1, "removes_radius": 3}
    return {**base, "method": "votes", "alpha": 0.01, "samples": 10, "looks": [], **changes}


SETTINGS = {"data": "D", "model": "gin", "part": "test", "p_add": 0.1, "p_remove": 0.2}


def test_the_summary_counts_right_and_certified_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        row(),
        row(correct=False, radius=5),
        row(predicted=None, correct=False, radius=-1, adds_radius=-1, removes_radius=-1),
        row(radius=2, adds_radius=2),
    ]
    summary = summarise(rows, SETTINGS)
    assert [summary["certified_accuracy"][r] for r in "0123"] == [0.5, 0.5, 0.25, 0]
    assert [summary["certified_accuracy_additions"][r] for r in "0123"] == [0.5, 0.5, 0.25, 0]
    assert [summary["certified_accuracy_removals"][r] for r in "0123"] == [0.5, 0.5, 0.5, 0.5]
    assert (summary["abstained"], summary["average_certified_radius"]) == (1, 0.75)
    print_summary({"run": "folder", **summary})
    shown = capsys.readouterr().out
    assert "gin on D: certified accuracy of 4 test graphs" in shown
    assert "noise adds 0.1 and removes 0.2; average certified radius 0.75, abstained on 1" in shown
