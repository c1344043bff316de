"""Progress on stderr: a bar with throughput and time left on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

__all__ = ["OutputOptions", "note", "progress"]

_SECONDS = 10.0  # between plain lines


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """What a command may print, and how it was called: to be said again when it is stopped."""

    as_json: bool = False
    quiet: bool = False
    again: str = "the same command"

    @property
    def silent(self) -> bool:
        """Whether progress stays hidden."""
        return self.quiet or self.as_json


def note(message: str, *, quiet: bool = False) -> None:
    """A line on stderr."""
    if not quiet:
        print(f"flipproof: {message}", file=sys.stderr, flush=True)


@contextmanager
def progress(
    what: str, total: int, *, unit: str, quiet: bool = False, done: int = 0
) -> Iterator[Callable[[int], None]]:
    """Show work under way; yields what to call with the amount just finished.

    Args:
        what: For instance "sampling".
        total: Amount of work in all.
        unit: Of the amount, for the throughput.
        quiet: Show nothing.
        done: Amount that an earlier session has finished.
    """
    if quiet or total == done:
        yield lambda amount: None
    elif sys.stderr.isatty():
        with _bar(what, total, unit, done) as advance:
            yield advance
    else:
        yield _Lines(what, total, unit, done).advance


@contextmanager
def _bar(what: str, total: int, unit: str, done: int) -> Iterator[Callable[[int], None]]:
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TextColumn("{task.fields[rate]}"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    started, finished = time.monotonic(), 0
    with rich_progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, completed=done, rate="")

        def advance(amount: int) -> None:
            nonlocal finished
            finished += amount
            rate = finished / max(1e-9, time.monotonic() - started)
            bar.update(task, advance=amount, rate=f"{rate:,.3g} {unit}/s" if rate < 100 else f"{rate:,.0f} {unit}/s")

        yield advance


class _Lines:
    """For a log file or a pipe: one line every few seconds."""

    def __init__(self, what: str, total: int, unit: str, done: int) -> None:
        self.what, self.total, self.unit, self.done = what, total, unit, done
        self.first = done
        self.started = self.shown = time.monotonic()

    def advance(self, amount: int) -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.shown < _SECONDS and self.done < self.total:
            return
        self.shown = now
        rate = (self.done - self.first) / max(1e-9, now - self.started)
        left = timedelta(seconds=round((self.total - self.done) / rate)) if rate else "unknown"
        note(f"{self.what}: {self.done:,} of {self.total:,} {self.unit}, {rate:,.0f} {self.unit}/s, {left} left")
