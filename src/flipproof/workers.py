"""Jobs on all cores: one process each, with progress, ended cleanly by Ctrl-C, restartable at any moment."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flipproof.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Job", "Report", "run_jobs", "run_jobs_with_progress"]

Report = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is; 0 of 0 is a remark."""


class Job(Protocol):
    """A piece of work: hashable, and small enough to be sent to a process."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def needs(self) -> Any:
        """The job that must be done before this one, or ``None``."""

    @property
    def weight(self) -> float:
        """Rough cost, for the bar over everything."""


AnyJob = TypeVar("AnyJob", bound=Job)

Work = Callable[..., None]
"""Called with a job and ``report=``; a module's function (or a ``partial`` of one), so that it can be sent to a process."""

Listener = Callable[[Any, str, int, int], None]
"""Called with a job and what its report says; "done" ends a job."""


def run_jobs(jobs: Sequence[AnyJob], work: Work, *, workers: int, listener: Listener) -> None:
    """Run all jobs, each as soon as what it needs is done, in ``workers`` processes; a single one is this process."""
    if workers == 1:
        _run_here(jobs, work, listener)
        return
    context = multiprocessing.get_context("spawn")
    tasks, messages = context.Queue(), context.Queue()
    waiting, finished = list(jobs), set[AnyJob]()
    total = len(waiting)
    processes = [
        context.Process(target=_work, args=(work, tasks, messages, os.getpid()), daemon=True)
        for _ in range(min(workers, total))
    ]
    try:
        for process in processes:
            process.start()
        while len(finished) < total:
            for job in [job for job in waiting if job.needs is None or job.needs in finished]:
                waiting.remove(job)
                tasks.put(job)
            try:
                job, what, done, of = messages.get(timeout=0.5)
            except queue.Empty:
                ended = [process.exitcode for process in processes if not process.is_alive()]
                if ended:
                    raise RuntimeError(f"a worker process ended with exit code {ended[0]} (out of memory?)") from None
                continue
            if what == "refused":
                raise InputError(done)
            if what == "failed":
                raise RuntimeError(f"{job.name} failed:\n{done}")
            if what == "done":
                finished.add(job)
            listener(job, what, done, of)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _run_here(jobs: Sequence[AnyJob], work: Work, listener: Listener) -> None:
    waiting, finished = list(jobs), set[AnyJob]()
    with _one_thread():
        while waiting:
            job = next(job for job in waiting if job.needs is None or job.needs in finished)
            waiting.remove(job)

            def report(what: str, done: int, of: int, job: AnyJob = job) -> None:
                listener(job, what, done, of)

            work(job, report=report)
            finished.add(job)
            listener(job, "done", 1, 1)


def run_jobs_with_progress(jobs: Sequence[AnyJob], work: Work, *, workers: int, console: Console) -> None:
    """As :func:`run_jobs`, with a bar for each job under way and one over everything; lines where there is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        overall = bars.add_task("everything", total=sum(job.weight for job in jobs))
        tasks: dict[AnyJob, tuple[str, TaskID]] = {}
        ended: list[AnyJob] = []

        def listen(job: AnyJob, what: str, done: int, total: int) -> None:
            if total == 0:
                console.print(f"{job.name}: {what}", soft_wrap=True)
                return
            if what == "done":
                if job in tasks:
                    bars.remove_task(tasks.pop(job)[1])
                ended.append(job)
                bars.update(overall, completed=sum(job.weight for job in ended))
                if not console.is_terminal:
                    console.print(f"{job.name}: done ({len(ended)} of {len(jobs)})", soft_wrap=True)
                return
            if job not in tasks or tasks[job][0] != what:
                if job in tasks:
                    bars.remove_task(tasks[job][1])
                tasks[job] = (what, bars.add_task(f"{job.name}: {what}", total=total))
            bars.update(tasks[job][1], completed=done)

        run_jobs(jobs, work, workers=workers, listener=listen)


def _work(work: Work, tasks: Any, messages: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends us

    def alive() -> None:
        if os.getppid() != parent:  # the parent was killed; what is finished is on disk
            os._exit(1)

    with _one_thread():
        while True:
            try:
                job = tasks.get(timeout=1)
            except queue.Empty:
                alive()
                continue

            def report(what: str, done: int, of: int, job: Any = job) -> None:
                alive()
                messages.put((job, what, done, of))

            try:
                work(job, report=report)
                report("done", 1, 1)
            except InputError as error:
                messages.put((job, "refused", str(error), 0))
            except Exception:
                messages.put((job, "failed", traceback.format_exc(), 0))


@contextmanager
def _one_thread() -> Iterator[None]:
    """A job has one core: its figures must not depend on how many run beside it."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
