"""Jobs on all cores: one process each, with progress, ended cleanly by Ctrl-C, restartable at any moment."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flipproof.errors import InputError
from flipproof.reproduce.experiment import Job, Settings, run_job

__all__ = ["run_jobs"]

Listener = Callable[[Job, str, int, int], None]
"""Called with a job, what it is doing, how much of it is done, and how much there is; "done" ends a job."""


def run_jobs(settings: Settings, folder: Path, *, workers: int, listener: Listener) -> None:
    """Run all jobs, each as soon as what it needs is done, in ``workers`` processes."""
    context = multiprocessing.get_context("spawn")
    tasks, messages = context.Queue(), context.Queue()
    waiting, finished = settings.jobs(), set[Job]()
    total = len(waiting)
    processes = [
        context.Process(target=_work, args=(settings, folder, tasks, messages, os.getpid()), daemon=True)
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


def _work(settings: Settings, folder: Path, tasks: Any, messages: Any, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it ends us
    import torch

    torch.set_num_threads(1)

    def alive() -> None:
        if os.getppid() != parent:  # the parent was killed; what is finished is on disk
            os._exit(1)

    while True:
        try:
            job = tasks.get(timeout=1)
        except queue.Empty:
            alive()
            continue

        def report(what: str, done: int, of: int, job: Job = job) -> None:
            alive()
            messages.put((job, what, done, of))

        try:
            run_job(job, settings, folder, report)
            report("done", 1, 1)
        except InputError as error:
            messages.put((job, "refused", str(error), 0))
        except Exception:
            messages.put((job, "failed", traceback.format_exc(), 0))
