"""What an engine is: a place where pieces of work are done, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from flipproof.graphs import Graph

__all__ = ["Engine", "GraphTask", "ThisProcess", "in_worker"]


@dataclass(frozen=True, eq=False)
class GraphTask:
    """A piece of work on one graph.

    Attributes:
        index: Number of the graph.
        graph: The graph; an engine may send it to a worker once and then only name it.
        request: What is to be done, small and picklable.
    """

    index: int
    graph: Graph
    request: Any


class Engine(Protocol):
    """Where work is done: this process, several processes, a cluster."""

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with ``work(task)``, in any order.

        Tasks are taken as workers become free, several short ones at a time, so that what follows may depend on results so far. A
        task ``None`` says that none is ready before another result has been handed out. If ``work`` has a method ``in_worker``,
        the context manager that it returns is entered once in every worker.
        """


def in_worker(work: Any) -> AbstractContextManager[Any]:
    """What a worker enters before its first task."""
    prepare = getattr(work, "in_worker", None)
    return nullcontext() if prepare is None else prepare()


class ThisProcess:
    """The default engine: one task after the other."""

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`Engine`."""
        for task in tasks:
            assert task is not None, "no result is under way that could be waited for"
            yield task, work(task)
