"""Progress on stderr: tqdm's bar on a terminal and in a notebook, a plain line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

_LINE_SECONDS = 10.0  # between plain lines


Progress = bool | Callable[[int, int], None]
"""What ``progress=`` of a function takes: whether to show it, or what is called with the amount done and the total."""


def note(message: str, *, quiet: bool = False) -> None:
    """Print a line on stderr, above a bar under way."""
    if quiet:
        return
    line = f"flipproof: {message}"
    if _on_terminal():
        from tqdm import tqdm

        tqdm.write(line, file=sys.stderr)
    else:
        _say(line)


@contextmanager
def progress(
    work: str, total: int, *, unit: str, quiet: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show work under way; yields a function to call with the amount just finished. ``done`` is what was finished earlier."""
    if quiet or total == done:
        yield lambda amount: None
    elif _on_terminal() or "ipykernel" in sys.modules:
        with warnings.catch_warnings():  # without notebook widgets the bar is text
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm

            bar = tqdm(total=total, initial=done, desc=work, unit=f" {unit}", dynamic_ncols=True)

        def advance(amount: int) -> None:
            bar.update(amount)

        with bar:
            yield advance
    else:
        yield _lines(work, total, unit, done)


def _lines(work: str, total: int, unit: str, done: int) -> Callable[[int], None]:
    """For a log file or a pipe: a line now and then, and one at the end."""
    first, started = done, time.monotonic()
    shown = started

    def advance(amount: int) -> None:
        nonlocal done, shown
        done, now = done + amount, time.monotonic()
        if now - shown >= _LINE_SECONDS or done >= total:
            shown, rate = now, (done - first) / max(1e-9, now - started)
            left = timedelta(seconds=round((total - done) / rate)) if rate else "unknown"
            note(f"{work}: {done:,} of {total:,} {unit}, {rate:,.0f} {unit}/s, {left} left")

    return advance


@contextmanager
def watched(watcher: Progress, work: str, total: int, *, unit: str, done: int = 0) -> Iterator[Callable[[int], None]]:
    """As :func:`progress`, for what a user gave as ``progress=``."""

    def report(amount: int) -> None:
        nonlocal done
        done += amount
        watcher(done, total)  # type: ignore[operator]

    if callable(watcher):
        yield report
        return
    with progress(work, total, unit=unit, quiet=not watcher, done=done) as advance:
        yield advance


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:  # nobody reads it any more; the work goes on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
