"""Where work is done: in this process, or on forked processes of this machine.

Each worker computes with one torch thread, so that a graph is computed just as it is in one process. Short tasks travel in
bundles: handing them out one by one would cost as much as doing them.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any, Protocol

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.progress import note

_DEATHS = 3  # of workers over the same task, after which it is given up
_BUNDLE_SECONDS, _BUNDLE = 0.02, 16  # work that travels together: how long it may take, and the largest number of tasks
_AHEAD = 2  # bundles per worker that are submitted, so that no worker waits for the next one

Work = Callable[[Any], Any]
Outcome = tuple[float, list[Any], Exception | None]


class Engine(Protocol):
    """Where work is done: this process, several processes, a cluster."""

    @property
    def workers(self) -> int:
        """How many tasks are done at the same time."""

    def run(self, work: Work, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with ``work(task)``, in any order; tasks are taken as workers become free."""


class ThisProcess:
    """The default engine: one task after the other."""

    workers = 1

    def run(self, work: Work, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :meth:`Engine.run`: every task with ``work(task)``."""
        return ((task, work(task)) for task in tasks)


class Pool(ABC):
    """Several workers behind an executor; a worker that dies is replaced, and its tasks are done again."""

    workers: int

    @abstractmethod
    def start(self, work: Work) -> Executor:
        """An executor whose ``submit(bundle)`` does the work of a list of tasks."""

    def end(self, executor: Any) -> str:
        """Stop the executor at once, and say how a worker ended."""
        executor.shutdown(cancel_futures=True)
        return "was lost"

    def run(self, work: Work, tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :meth:`Engine.run`: every task with ``work(task)``."""
        source, lost, under_way = iter(tasks), list[Any](), dict[Future[Outcome], list[Any]]()
        deaths, size, executor = Counter[int](), 1, self.start(work)
        try:
            while True:
                # tasks of a worker that died are done one at a time, so that the next death has one suspect
                while len(under_way) < (1 if lost else _AHEAD * self.workers):
                    bundle = [lost.pop(0)] if lost else list(islice(source, size))
                    if not bundle:
                        break
                    under_way[executor.submit(bundle)] = bundle  # type: ignore[arg-type]
                if not under_way:
                    executor.shutdown()
                    return
                done = wait(under_way, return_when=FIRST_COMPLETED).done
                if any(isinstance(future.exception(), BrokenExecutor) for future in done):
                    done = set(under_way)
                failures, suspects = list[Exception](), list[Any]()
                for future in [future for future in under_way if future in done]:
                    bundle = under_way.pop(future)
                    if isinstance(future.exception(), BrokenExecutor):
                        suspects += bundle
                        continue
                    seconds, results, failure = future.result()
                    size = max(1, min(_BUNDLE, int(_BUNDLE_SECONDS * len(results) / max(seconds, 1e-6))))
                    yield from zip(bundle, results, strict=False)
                    failures += [] if failure is None else [failure]
                if failures:
                    raise failures[0]
                if suspects:
                    fate = self.end(executor)
                    deaths.update(map(id, suspects))
                    if len(suspects) == 1 and deaths[id(suspects[0])] >= _DEATHS:
                        raise InputError(
                            f"a worker process {fate}, {_DEATHS} times over the same graph (out of memory? use fewer --workers; "
                            "what is finished is kept)"
                        )
                    lost += suspects
                    executor = self.start(work)
        finally:
            self.end(executor)


class Processes(Pool):
    """Processes of this machine. Forked, they inherit the work with its model; only tasks and results travel.

    Args:
        workers: How many.
        start: ``"fork"``, or ``"spawn"`` for work that trains: gradients do not survive a fork, so the work is pickled.
    """

    def __init__(self, workers: int, *, start: str = "fork") -> None:
        self.workers, self.method = checked_count(workers, "workers", 1, "one per core is usual"), start

    def start(self, work: Work) -> Executor:
        return _ProcessPool(self.workers, multiprocessing.get_context(self.method), _begin, (work, os.getpid()))

    def end(self, executor: Any) -> str:
        broken = executor._broken
        for process in executor.team:
            if broken:
                process.join(1)
            process.terminate()  # all of them: one that dies alone may take a lock along
        for process in executor.team:
            process.join()
        executor.shutdown(cancel_futures=True)
        codes = [process.exitcode or 0 for process in executor.team]
        code = next((code for code in codes if code not in (0, -signal.SIGTERM)), 0)  # the others were terminated
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class _ProcessPool(ProcessPoolExecutor):
    team: tuple[Any, ...] = ()

    def submit(self, bundle: list[Any]) -> Future[Outcome]:  # type: ignore[override]
        # a call may start processes; Ctrl-C must not reach them before they have learnt to leave it to the parent
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():  # newer Pythons warn of threads; a worker uses none of the parent's
                warnings.simplefilter("ignore", DeprecationWarning)
                return super().submit(do_bundle, bundle)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self.team = tuple((self._processes or {}).values())


works: dict[str, Work] = {}
"""In a worker: the work that it does, by a name."""


def install(work: Work, name: str = "") -> None:
    """In a worker: keep the work, and compute on one thread from now on.

    In a forked worker the other threads no longer exist, and whoever waited for them would wait forever.
    """
    works.clear()
    works[name] = work
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def do_bundle(bundle: list[Any], name: str = "") -> Outcome:
    """In a worker: seconds, results up to a task that fails, and its exception."""
    started, results, failure = time.perf_counter(), list[Any](), None
    try:
        for task in bundle:
            results.append(works[name](task))
    except Exception as error:
        failure = _picklable(error)
    return time.perf_counter() - started, results, failure


def _begin(work: Work, parent: int) -> None:
    """In a new process: install the work, leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    install(work)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process soon after the parent was killed, even in the middle of a task."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _picklable(error: Exception) -> Exception:
    """The exception, or one that can be pickled and says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


@contextmanager
def one_thread() -> Iterator[None]:
    """While entered, torch (if loaded) computes on one thread, as in a worker: the same bits, and a core per process."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_engine(workers: int | None, *, forks: bool = True, quiet: bool = True) -> Engine:
    """This number of workers, 0 for one per core; ``None`` is this process.

    A model on a GPU does not survive a fork: unless ``quiet``, a sentence says why one worker must do.
    """
    count = 1 if workers is None else checked_count(workers or cores(), "workers", 1, "0 for one per core")
    safe = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    if count > 1 and safe and forks:
        return Processes(count)
    why = "the model is on a GPU" if safe else "this system cannot fork a process safely"
    note(f"{why}: using one worker", quiet=quiet or count == 1)
    return ThisProcess()
