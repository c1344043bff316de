"""The jobs of a study on all cores. Trainings do not survive a fork, so worker processes are spawned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol, TypeVar

from flipproof.engines import Engine, Processes, ThisProcess, cores
from flipproof.progress import note, progress


class Job(Protocol):
    """A piece of a study, small enough to be sent to a process."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def weight(self) -> int:
        """Rough cost, for the progress bar."""


AnyJob = TypeVar("AnyJob", bound=Job)


def run_jobs(
    what: str,
    jobs: Sequence[AnyJob],
    work: Callable[[AnyJob], Any],
    *,
    ready: Iterable[AnyJob | None] | None = None,
    engine: Engine | None = None,
    workers: int | None,
    quiet: bool,
) -> Iterator[tuple[AnyJob, Any]]:
    """Every job with its result, as they are finished.

    Args:
        what: Name of the work, for the progress bar.
        jobs: All of them.
        work: Does one, in any process; picklable.
        ready: The same jobs in an order in which they can be done, ``None`` where one must be waited for; by default as given.
        engine: Where they are done, instead of processes of this machine.
        workers: Processes; by default one per core. A single one is this process.
        quiet: Show no progress.
    """
    count = max(1, min(workers or cores(), len(jobs)))
    chosen: Engine = engine or (ThisProcess() if count == 1 else Processes(count, start="spawn"))
    total = sum(job.weight for job in jobs)
    with (
        progress(what, total, unit="units", quiet=quiet) as advance,
        closing(chosen.run(work, jobs if ready is None else ready)) as results,  # type: ignore[type-var]
    ):
        for done, (job, result) in enumerate(results, start=1):
            yield job, result
            note(f"{job.name}: done ({done} of {len(jobs)})", quiet=quiet)
            advance(job.weight)


@contextmanager
def one_thread() -> Iterator[None]:
    """While entered, torch computes on one thread: figures must not depend on how many jobs run side by side."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
