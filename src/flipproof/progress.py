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
    """Show work under way; yields a function to call with the amount just finished. ``done`` is what was finished earlier."""
    if quiet or total == done:
        yield lambda amount: None
        return
    terminal, first, started = _on_terminal(), done, time.monotonic()
    now = shown = started

    def draw() -> None:
        """A bar that is drawn again and again; or, for a log file or a pipe, a line."""
        elapsed = now - started
        rate = (done - first) / max(1e-9, elapsed)
        left = timedelta(seconds=round((total - done) / rate)) if rate else "unknown"
        if not terminal:
            return note(f"{what}: {done:,} of {total:,} {unit}, {rate:,.0f} {unit}/s, {left} left")
        share, speed = min(1.0, done / total), f"{rate:,.3g}" if rate < 100 else f"{rate:,.0f}"
        figures = f"{share:4.0%} {speed} {unit}/s {timedelta(seconds=round(elapsed))} elapsed, {left} left"
        room = shutil.get_terminal_size().columns - 1
        width = max(0, min(_BAR_WIDTH, room - len(f"{what}  {figures}")))
        bar = ("#" * int(share * width)).ljust(width, ".")
        return _say(f"{_CLEAR}{f'{what} {bar} {figures}'[:room]}", end="")

    def advance(amount: int) -> None:
        nonlocal done, now, shown
        done, now = done + amount, time.monotonic()
        if now - shown >= (_REDRAW_SECONDS if terminal else _LINE_SECONDS) or done >= total:
            shown = now
            draw()

    if terminal:
        draw()
    try:
        yield advance
    finally:
        if terminal:
            draw()
            _say()


@contextmanager
def watched(
    watcher: bool | Callable[[int, int], None], what: str, total: int, *, unit: str, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """What ``progress=`` of a function means: ``True`` shows it, a function is called with the amount done and the total."""

    def report(amount: int) -> None:
        nonlocal done
        done += amount
        watcher(done, total)  # type: ignore[operator]

    if callable(watcher):
        yield report
        return
    with progress(what, total, unit=unit, quiet=not watcher, done=done) as advance:
        yield advance


def _say(text: str = "", end: str = "\n") -> None:
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except BrokenPipeError:  # nobody reads it any more; the work goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
