"""Progress: what stands on stderr while work is under way."""

import io
import sys

import pytest

from flipproof import progress as module
from flipproof.progress import note, progress, watched


class Terminal(io.StringIO):
    def isatty(self):
        return True


def terminal(monkeypatch, kind="xterm"):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", kind)
    return screen


def test_plain_lines_are_few_and_the_last_says_all(monkeypatch, capsys):
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


def test_a_terminal_gets_a_bar_and_remarks_stand_above_it(monkeypatch):
    screen = terminal(monkeypatch)
    with progress("sampling", 2000, unit="samples", done=1000) as advance:
        advance(500)
        note("a remark")
        advance(500)
    last = screen.getvalue().split("\r")[-1]
    assert "sampling: 100%" in last
    assert "2000/2000" in last
    assert last.endswith("\n")
    assert "flipproof: a remark\n" in screen.getvalue()


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    screen = terminal(monkeypatch, kind="dumb")
    with progress("sampling", 10, unit="samples") as advance:
        advance(10)
    assert screen.getvalue().startswith("flipproof: sampling: 10 of 10 samples, ")


@pytest.mark.parametrize("done", [0, 3])
def test_a_function_is_told_what_is_done_of_how_much(done, capsys):
    told: list[tuple[int, int]] = []
    with watched(lambda done, total: told.append((done, total)), "work", 5, unit="pieces", done=done) as advance:
        advance(1)
        advance(1)
    assert told == [(done + 1, 5), (done + 2, 5)]
    assert capsys.readouterr().err == ""


def test_quiet_and_nothing_to_do_show_nothing(capsys):
    with progress("sampling", 10, unit="samples", quiet=True) as advance:
        advance(10)
    with progress("sampling", 10, unit="samples", done=10) as advance:
        pass
    assert capsys.readouterr().err == ""
