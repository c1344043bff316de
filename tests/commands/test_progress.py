"""Progress and summary: what stands on the screen."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from flipproof.commands import progress as module
from flipproof.commands.progress import progress
from flipproof.commands.summary import print_summary, summarise


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_are_few_and_the_last_says_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    with progress("sampling", 1000, unit="samples", done=200) as advance:
        for _ in range(8):
            advance(100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "flipproof: sampling: 500 of 1,000 samples, 25 samples/s, 0:00:20 left",
        "flipproof: sampling: 800 of 1,000 samples, 25 samples/s, 0:00:08 left",
        "flipproof: sampling: 1,000 of 1,000 samples, 25 samples/s, 0:00:00 left",
    ]


def test_a_terminal_gets_a_bar_with_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("sampling", 2000, unit="samples") as advance:
        advance(2000)
    assert "samples/s" in screen.getvalue()
    assert "100%" in screen.getvalue()


def test_quiet_and_nothing_to_do_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("sampling", 10, unit="samples", quiet=True) as advance:
        advance(10)
    with progress("sampling", 10, unit="samples", done=10) as advance:
        pass
    assert capsys.readouterr().err == ""


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
