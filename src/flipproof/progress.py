"""Progress on stderr: a bar with throughput and time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

__all__ = ["note", "progress", "watched"]

_LINE_SECONDS = 10.0  # between plain lines
_REDRAW_SECONDS = 0.1  # between redraws of the bar
_BAR_WIDTH = 40
_CLEAR = "\r\x1b[K"  # back to the start of the line, and empty it


def note(message: str, *, quiet: bool = False) -> None:
    """Print a line on stderr; a bar under way is drawn again below it."""
    if not quiet:
        _say(f"{_CLEAR if _on_terminal() else ''}flipproof: {message}")


@contextmanager
def progress(
    what: str, total: int, *, unit: str, quiet: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show work under way; yields a function to call with the amount just finished.

    Args:
        what: Name of the work, for instance "sampling".
        total: Amount of work in all.
        unit: Unit of the amount, for instance "samples".
        quiet: Show nothing.
        done: Amount that an earlier session finished.
    """
    if quiet or total == done:
        yield lambda amount: None
    elif _on_terminal():
        bar = _Bar(what, total, unit, done)
        bar.draw()
        try:
            yield bar.advance
        finally:
            bar.draw()
            _say()
    else:
        yield _Lines(what, total, unit, done).advance


@contextmanager
def watched(
    watcher: bool | Callable[[int, int], None], what: str, total: int, *, unit: str, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """What ``progress=`` of a function means: ``True`` shows it, a function is called with the amount done and the total.

    >>> with watched(lambda done, total: print(f"{done} of {total}"), "counting", 2, unit="sheep") as advance:
    ...     advance(1)
    ...     advance(1)
    1 of 2
    2 of 2
    """
    if not callable(watcher):
        with progress(what, total, unit=unit, quiet=not watcher, done=done) as advance:
            yield advance
        return

    def report(amount: int) -> None:
        nonlocal done
        done += amount
        watcher(done, total)

    yield report


class _Meter(ABC):
    """How much is done, how fast, and how long the rest will take."""

    seconds: float  # between two looks

    def __init__(self, what: str, total: int, unit: str, done: int) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, done
        self.first = done
        self.started = self.now = self.shown = time.monotonic()

    def advance(self, amount: int) -> None:
        self.done += amount
        self.now = time.monotonic()
        if self.now - self.shown >= self.seconds or self.done >= self.total:
            self.shown = self.now
            self.draw()

    @abstractmethod
    def draw(self) -> None:
        """Show the state."""

    @property
    def rate(self) -> float:
        return (self.done - self.first) / max(1e-9, self.now - self.started)

    @property
    def left(self) -> str:
        return str(timedelta(seconds=round((self.total - self.done) / self.rate))) if self.rate else "unknown"


class _Lines(_Meter):
    """For a log file or a pipe: one line every few seconds."""

    seconds = _LINE_SECONDS

    def draw(self) -> None:
        amount, rate = f"{self.done:,} of {self.total:,} {self.unit}", f"{self.rate:,.0f} {self.unit}/s"
        note(f"{self.what}: {amount}, {rate}, {self.left} left")


class _Bar(_Meter):
    """For a terminal: one line, drawn again and again."""

    seconds = _REDRAW_SECONDS

    def draw(self) -> None:
        share = min(1.0, self.done / self.total)
        rate = f"{self.rate:,.3g}" if self.rate < 100 else f"{self.rate:,.0f}"
        elapsed = timedelta(seconds=round(self.now - self.started))
        figures = f"{share:4.0%} {rate} {self.unit}/s {elapsed} elapsed, {self.left} left"
        room = shutil.get_terminal_size().columns - 1
        width = max(0, min(_BAR_WIDTH, room - len(f"{self.what}  {figures}")))
        bar = ("#" * int(share * width)).ljust(width, ".")
        _say(f"{_CLEAR}{f'{self.what} {bar} {figures}'[:room]}", end="")


def _say(text: str = "", end: str = "\n") -> None:
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except BrokenPipeError:  # nobody reads it any more; the work goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
