"""All cores of this machine: forked processes, or threads where a process cannot be forked.

Each worker does one task at a time with one torch thread, so that nothing is oversubscribed and a block is computed just as it is
in one process. Short tasks are handed out several at a time: asking for the next one would cost as much as doing it.
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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing import connection
from typing import Any

from flipproof.checks import checked_count
from flipproof.engines.engine import Engine, GraphTask, ThisProcess, in_worker
from flipproof.errors import InputError

__all__ = ["Processes", "Threads", "cores", "local_engine"]

_DEATHS = 3  # of workers over the same task, after which it is given up
_AT_ONCE = 0.02  # seconds of work that are handed out together
_MOST_AT_ONCE = 16


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


class Processes:
    """Processes of this machine. Forked, they inherit the work with its model; only tasks and results travel.

    A worker that dies is replaced and its tasks are done again, one by one; at the third death over the same task it is given up.

    Args:
        workers: How many.
        start: ``"fork"``, or ``"spawn"`` for work that trains: gradients do not survive a fork, so the work is pickled.
    """

    def __init__(self, workers: int, *, start: str = "fork") -> None:
        self.workers, self.start = checked_count(workers, "workers", 1, "one per core is usual"), start

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`flipproof.engines.Engine`."""
        source, team, again = iter(tasks), list[_Worker](), deque[Any]()
        deaths: dict[int, int] = {}
        exhausted = False

        def taken(number: int) -> list[Any]:
            """Up to so many tasks that are ready now; those of a worker that has died one by one."""
            nonlocal exhausted
            if again:
                return [again.popleft()]
            found = list[Any]()
            while len(found) < number and not exhausted:
                task = next(source, _NOTHING)
                exhausted = task is _NOTHING
                if exhausted or task is None:
                    break
                found.append(task)
            return found

        try:
            idle = [_Worker(work, team, self.start) for _ in range(self.workers)]
            while True:
                while idle and (chosen := taken(idle[-1].number)):
                    idle.pop().give(chosen)
                busy = [worker for worker in team if worker.tasks]
                if not busy:
                    assert exhausted, "no result is under way that could be waited for"
                    return
                ready = connection.wait([worker.pipe for worker in busy])
                for worker in [worker for worker in busy if worker.pipe in ready]:
                    given = worker.tasks
                    try:
                        results, failure = worker.results()
                    except EOFError:
                        worker.end()
                        if len(given) == 1:
                            deaths[id(given[0])] = deaths.get(id(given[0]), 0) + 1
                            if deaths[id(given[0])] == _DEATHS:
                                raise InputError(_fate(worker)) from None
                        again.extend(given)
                        idle.append(_Worker(work, team, self.start))
                        continue
                    # the worker goes on before the results are looked at, unless what to do next depends on them
                    following = taken(worker.number) if failure is None else []
                    if following:
                        worker.give(following)
                    else:
                        idle.append(worker)
                    for task, result in zip(given, results, strict=False):
                        deaths.pop(id(task), None)
                        yield task, result
                    if failure is not None:
                        raise failure
        finally:
            for worker in list(team):
                worker.end()


_NOTHING: Any = object()
_SAME: Any = None  # in place of a graph: the one that the worker has got last


class _Worker:
    """A process, the pipe to it, and the tasks that it has; ``number`` is how many of them it should be given at once."""

    def __init__(self, work: Callable[[Any], Any], team: list[_Worker], start: str) -> None:
        context: Any = multiprocessing.get_context(start)
        self.pipe, theirs = context.Pipe()
        self.tasks, self.team = list[Any](), team
        self.graph: Any = None
        self.number, self._given = 1, 0.0
        inherited = [self.pipe, *(worker.pipe for worker in team)] if start == "fork" else []
        self.process = context.Process(target=_work, args=(work, theirs, inherited, os.getpid()), daemon=True)
        # Ctrl-C must not reach the child before it has learnt to leave it to the parent
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with warnings.catch_warnings():  # newer Pythons warn of threads; the child uses none of the parent's
                warnings.simplefilter("ignore", DeprecationWarning)
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        team.append(self)

    def give(self, tasks: list[Any]) -> None:
        self.tasks, self._given, sent = tasks, time.monotonic(), []
        for task in tasks:
            if isinstance(task, GraphTask):  # a graph travels once, not with each piece of work on it
                same, self.graph = task.graph is self.graph, task.graph
                task = GraphTask(task.index, _SAME, task.request) if same else task
            sent.append(task)
        with suppress(ConnectionError):  # it has died: seen when its results are waited for
            self.pipe.send(sent)

    def results(self) -> tuple[list[Any], BaseException | None]:
        """What the worker sent, for its tasks in their order up to one that failed; ``EOFError`` if it died."""
        try:
            results, failure = self.pipe.recv()
        except (ConnectionError, pickle.UnpicklingError):
            raise EOFError from None
        each = (time.monotonic() - self._given) / len(self.tasks)
        self.number = max(1, min(_MOST_AT_ONCE, int(_AT_ONCE / max(each, 1e-6))))
        self.tasks = []
        return results, failure

    def end(self) -> None:
        self.team.remove(self)
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _fate(worker: _Worker) -> str:
    code = worker.process.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return (
        f"a worker process {how}, {_DEATHS} times over the same samples (out of memory? use fewer --workers; what is finished "
        "is kept)"
    )


def _work(work: Callable[[Any], Any], pipe: Any, inherited: list[Any], parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for other in inherited:  # else a pipe would not end with the parent
        other.close()
    try:
        with in_worker(work):
            threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
            graph: Any = None
            while True:
                results, failure = [], None
                for task in pipe.recv():
                    if isinstance(task, GraphTask):
                        graph = graph if task.graph is _SAME else task.graph
                        task = GraphTask(task.index, graph, task.request)
                    try:
                        results.append(work(task))
                    except Exception as error:
                        failure = _sendable(error)
                        break
                pipe.send((results, failure))
    except (EOFError, OSError):
        return  # the parent has gone; what is finished is on disk


def _end_with(parent: int) -> None:
    """End this process soon after the parent was killed, even in the middle of a task."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _sendable(error: Exception) -> Exception:
    """The exception, or one that can be pickled and says the same."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


class Threads:
    """Threads of this process; the model must be safe to call from several, as torch modules are."""

    def __init__(self, workers: int) -> None:
        self.workers = checked_count(workers, "workers", 1, "one per core is usual")

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`flipproof.engines.Engine`."""
        source, under_way = iter(tasks), dict[Future[Any], Any]()
        pool = ThreadPoolExecutor(self.workers)
        exhausted = False
        try:
            while True:
                while len(under_way) < self.workers and not exhausted:
                    task = next(source, _NOTHING)
                    exhausted = task is _NOTHING
                    if exhausted or task is None:
                        break
                    under_way[pool.submit(work, task)] = task
                if not under_way:
                    assert exhausted, "no result is under way that could be waited for"
                    return
                done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield under_way.pop(future), future.result()
        finally:
            pool.shutdown(cancel_futures=True)
