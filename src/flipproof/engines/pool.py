"""Pools of workers: forked processes of this machine, or threads where a process cannot be forked.

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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from flipproof.checks import checked_count
from flipproof.errors import InputError

_DEATHS = 3  # of workers over the same task, after which it is given up
_BUNDLE_SECONDS, _BUNDLE = 0.02, 16  # work that travels together: how long it may take, and the largest number of tasks
_AHEAD = 2  # bundles per worker that are submitted, so that no worker waits for the next one
_END: Any = object()

Outcome = tuple[float, list[Any], Exception | None]


class Engine(Protocol):
    """Where work is done: this process, several processes, a cluster."""

    @property
    def workers(self) -> int:
        """How many tasks are done at the same time."""

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with ``work(task)``, in any order.

        Tasks are taken as workers become free. A task ``None`` says that none is ready before another result has been handed
        out. If ``work`` has a method ``in_worker``, the context manager that it returns is entered once in every worker.
        """


class ThisProcess:
    """The default engine: one task after the other."""

    workers = 1

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`Engine`."""
        for task in tasks:
            assert task is not None, "no result is under way that could be waited for"
            yield task, work(task)


class Pool(ABC):
    """Several workers behind an executor; a worker that dies is replaced, and its tasks are done again."""

    workers: int

    @abstractmethod
    def start(self, work: Callable[[Any], Any]) -> Executor:
        """An executor whose ``submit(bundle)`` does a list of tasks."""

    def end(self, executor: Any) -> None:
        """Stop the executor at once."""
        executor.shutdown(cancel_futures=True)

    def fate(self, executor: Any) -> str:
        """How a worker ended, in words."""
        return "was lost"

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`Engine`."""
        source, under_way, lost = iter(tasks), dict[Future[Outcome], list[Any]](), deque[Any]()
        deaths, bundle_size, exhausted = Counter[int](), 1, False

        def bundles() -> Iterator[list[Any]]:
            """What can be submitted now; tasks of a worker that died one at a time, so that the next death has one suspect."""
            nonlocal exhausted
            if lost:
                yield from [] if under_way else [[lost.popleft()]]
                return
            ready = True
            while ready and not exhausted and len(under_way) < _AHEAD * self.workers:
                bundle = list[Any]()
                while ready and not exhausted and len(bundle) < bundle_size:
                    task = next(source, _END)
                    exhausted, ready = task is _END, task is not None
                    bundle += [task] if ready and not exhausted else []
                if bundle:
                    yield bundle

        executor: Any = self.start(work)
        try:
            while True:
                for bundle in bundles():
                    under_way[executor.submit(bundle)] = bundle
                if not under_way:
                    assert exhausted, "no result is under way that could be waited for"
                    executor.shutdown()
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                if any(isinstance(future.exception(), BrokenExecutor) for future in done):
                    done = set(under_way)
                failures, suspects = list[Exception](), list[Any]()
                for future in [future for future in under_way if future in done]:
                    bundle = under_way.pop(future)
                    if isinstance(future.exception(), BrokenExecutor):
                        suspects += bundle
                        continue
                    seconds, results, failure = future.result()
                    bundle_size = max(1, min(_BUNDLE, int(_BUNDLE_SECONDS * len(results) / max(seconds, 1e-6))))
                    yield from zip(bundle, results, strict=False)
                    failures += [] if failure is None else [failure]
                if failures:
                    raise failures[0]
                if suspects:
                    how = self.fate(executor)
                    self.end(executor)
                    deaths.update(map(id, suspects))
                    if len(suspects) == 1 and deaths[id(suspects[0])] >= _DEATHS:
                        raise InputError(
                            f"a worker process {how}, {_DEATHS} times over the same graph (out of memory? use fewer --workers; "
                            "what is finished is kept)"
                        )
                    lost.extend(suspects)
                    executor = self.start(work)
        finally:
            self.end(executor)


class Processes(Pool):
    """Processes of this machine. Forked, they inherit the work with its model; only tasks and results travel.

    A worker that dies is replaced and its tasks are done again, one by one; at the third death over the same task it is given up.

    Args:
        workers: How many.
        start: ``"fork"``, or ``"spawn"`` for work that trains: gradients do not survive a fork, so the work is pickled.
    """

    def __init__(self, workers: int, *, start: str = "fork") -> None:
        self.workers, self.method = checked_count(workers, "workers", 1, "one per core is usual"), start

    def start(self, work: Callable[[Any], Any]) -> Executor:
        return _ProcessPool(self.workers, multiprocessing.get_context(self.method), _install, (work, os.getpid()))

    def end(self, executor: _ProcessPool) -> None:
        executor.kill()

    def fate(self, executor: _ProcessPool) -> str:
        for process in executor.team:
            process.join(1)
        codes = [process.exitcode or 0 for process in executor.team]
        # the pool terminates the others
        code = next((code for code in codes if code not in (0, -signal.SIGTERM)), 0)
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


class _ProcessPool(ProcessPoolExecutor):
    """A pool of processes that can be killed in the middle of a task."""

    team: tuple[Any, ...] = ()

    def submit(self, bundle: list[Any]) -> Future[Outcome]:  # type: ignore[override]
        # a call may start processes; Ctrl-C must not reach them before they have learnt to leave it to the parent
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():  # newer Pythons warn of threads; a worker uses none of the parent's
                warnings.simplefilter("ignore", DeprecationWarning)
                future = super().submit(_do_installed, bundle)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.team = tuple((self._processes or {}).values())
        return future

    def kill(self) -> None:
        for process in self.team:  # all of them: one that dies alone may take a lock along
            process.terminate()
        for process in self.team:
            process.join()
        self.shutdown(cancel_futures=True)


class Threads(Pool):
    """Threads of this process; the model must be safe to call from several, as torch modules are."""

    def __init__(self, workers: int) -> None:
        self.workers = checked_count(workers, "workers", 1, "one per core is usual")

    def start(self, work: Callable[[Any], Any]) -> Executor:
        return _ThreadPool(self.workers, work)


class _ThreadPool(ThreadPoolExecutor):
    def __init__(self, workers: int, work: Callable[[Any], Any]) -> None:
        super().__init__(workers)
        self._shared = work

    def submit(self, bundle: list[Any]) -> Future[Outcome]:  # type: ignore[override]
        return super().submit(do_bundle, self._shared, bundle)


def do_bundle(work: Callable[[Any], Any], bundle: list[Any]) -> Outcome:
    """In a worker: seconds, results up to a task that fails, and its exception."""
    started, results = time.perf_counter(), list[Any]()
    try:
        for task in bundle:
            results.append(work(task))
    except Exception as error:
        return time.perf_counter() - started, results, _picklable(error)
    return time.perf_counter() - started, results, None


def in_worker(work: Any) -> AbstractContextManager[Any]:
    """What a worker enters before its first task."""
    prepare = getattr(work, "in_worker", None)
    return nullcontext() if prepare is None else prepare()


_installed: list[Any] = []


def _install(work: Callable[[Any], Any], parent: int) -> None:
    """In a new process: keep the work, leave Ctrl-C to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    context = in_worker(work)
    context.__enter__()  # it is left when the process ends
    _installed[:] = [work, context]
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _do_installed(bundle: list[Any]) -> Outcome:
    return do_bundle(_installed[0], bundle)


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


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def local_engine(workers: int, *, forks: bool = True, threads: bool = True) -> tuple[Engine, str]:
    """The engine for so many workers on this machine, and a sentence where it is not the usual one.

    Forked processes, which need not pickle the model. Where they cannot be had, threads, if the model may be called from several.

    Args:
        workers: How many.
        forks: Whether the model survives a fork; one on a GPU does not.
        threads: Whether the model may be called from several threads.
    """
    if workers == 1:
        return ThisProcess(), ""
    safe = "fork" in multiprocessing.get_all_start_methods() and sys.platform != "darwin"
    if safe and forks:
        return Processes(workers), ""
    why = "the model is on a GPU" if safe else "this system cannot fork a process safely"
    if threads:
        return Threads(workers), f"{why}: using {workers} threads instead of processes"
    return ThisProcess(), f"{why}, and the model may not be safe to call from two threads: using one worker"
