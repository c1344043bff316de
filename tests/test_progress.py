"""Progress: what stands on stderr while work is under way."""

import io
import sys
from contextlib import suppress

import pytest

from flipproof import progress as module
from flipproof.progress import note, progress, watched


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What a user has read: every state of every line."""
        return [line for line in self.getvalue().replace("\r\x1b[K", "\n").split("\n") if line]


def terminal(monkeypatch: pytest.MonkeyPatch, *, kind: str = "xterm", columns: int = 100) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", kind)
    monkeypatch.setenv("COLUMNS", str(columns))
    return screen


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
    screen = terminal(monkeypatch)
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    with progress("sampling", 2000, unit="samples", done=1000) as advance:
        advance(500)
        note("a remark")
        advance(500)
    assert screen.lines == [
        f"sampling {'#' * 20}{'.' * 20}  50% 0 samples/s 0:00:00 elapsed, unknown left",
        f"sampling {'#' * 30}{'.' * 10}  75% 125 samples/s 0:00:04 elapsed, 0:00:04 left",
        "flipproof: a remark",
        *[f"sampling {'#' * 40} 100% 125 samples/s 0:00:08 elapsed, 0:00:00 left"] * 2,
    ]
    assert screen.getvalue().endswith("\n")


def test_a_bar_never_wraps_and_ends_its_line_when_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch, columns=40)
    with suppress(KeyboardInterrupt), progress("sampling", 10, unit="samples") as advance:
        advance(10)
        raise KeyboardInterrupt
    assert max(map(len, screen.lines)) == 39
    assert screen.getvalue().endswith("\n")


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch, kind="dumb")
    with progress("sampling", 10, unit="samples") as advance:
        advance(10)
    assert screen.getvalue().startswith("flipproof: sampling: 10 of 10 samples, ")


@pytest.mark.parametrize("done", [0, 3])
def test_a_function_is_told_what_is_done_of_how_much(done: int, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int]] = []
    with watched(lambda done, total: told.append((done, total)), "work", 5, unit="pieces", done=done) as advance:
        advance(1)
        advance(1)
    assert told == [(done + 1, 5), (done + 2, 5)]
    assert capsys.readouterr().err == ""


def test_quiet_and_nothing_to_do_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("sampling", 10, unit="samples", quiet=True) as advance:
        advance(10)
    with progress("sampling", 10, unit="samples", done=10) as advance:
        pass
    assert capsys.readouterr().err == ""
