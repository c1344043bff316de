"""Progress on stderr: a bar with throughput and time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

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
        return
    meter = _Meter(what, total, unit, done)
    if not meter.terminal:
        yield meter.advance
        return
    meter.draw()
    try:
        yield meter.advance
    finally:
        meter.draw()
        _say()


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


class _Meter:
    """How much is done, how fast, and how long the rest will take."""

    def __init__(self, what: str, total: int, unit: str, done: int) -> None:
        self.what, self.total, self.unit, self.first, self.done = what, total, unit, done, done
        self.terminal = _on_terminal()
        self.started = self.now = self.shown = time.monotonic()

    def advance(self, amount: int) -> None:
        self.done += amount
        self.now = time.monotonic()
        pause = _REDRAW_SECONDS if self.terminal else _LINE_SECONDS
        if self.now - self.shown >= pause or self.done >= self.total:
            self.shown = self.now
            self.draw()

    def draw(self) -> None:
        """A bar that is drawn again and again; or, for a log file or a pipe, a line."""
        elapsed = self.now - self.started
        rate = (self.done - self.first) / max(1e-9, elapsed)
        left = timedelta(seconds=round((self.total - self.done) / rate)) if rate else "unknown"
        if not self.terminal:
            amount = f"{self.done:,} of {self.total:,} {self.unit}"
            return note(f"{self.what}: {amount}, {rate:,.0f} {self.unit}/s, {left} left")
        share, shown = min(1.0, self.done / self.total), f"{rate:,.3g}" if rate < 100 else f"{rate:,.0f}"
        figures = f"{share:4.0%} {shown} {self.unit}/s {timedelta(seconds=round(elapsed))} elapsed, {left} left"
        room = shutil.get_terminal_size().columns - 1
        width = max(0, min(_BAR_WIDTH, room - len(f"{self.what}  {figures}")))
        bar = ("#" * int(share * width)).ljust(width, ".")
        return _say(f"{_CLEAR}{f'{self.what} {bar} {figures}'[:room]}", end="")


def _say(text: str = "", end: str = "\n") -> None:
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except BrokenPipeError:  # nobody reads it any more; the work goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
