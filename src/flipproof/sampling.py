"""Many graphs sampled at a time, block by block, on any engine; each graph until its plan says that it is enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sequential import Plan
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import BLOCK
from flipproof.votes import Block, Votes

__all__ = ["BlockTask", "Engine", "LookTask", "Store", "Task", "ThisProcess", "sample_graphs"]


@dataclass(frozen=True, eq=False)
class BlockTask:
    """Sample the block of a graph that begins with sample ``start``."""

    index: int
    graph: Graph
    start: int


@dataclass(frozen=True, eq=False)
class LookTask:
    """Decide whether a graph's votes are enough: a certificate, or ``None`` to go on."""

    index: int
    votes: Votes


Task = BlockTask | LookTask


class Engine(Protocol):
    """Where work is done: this process, several processes, a cluster."""

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Every task with ``work(task)``, in any order.

        Tasks are taken one at a time, as workers become free, so that what follows may depend on results so far. A task
        ``None`` says that none is ready before another result has been handed out.
        """


class ThisProcess:
    """The default engine: one task after the other."""

    def run(self, work: Callable[[Any], Any], tasks: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """See :class:`Engine`."""
        for task in tasks:
            assert task is not None, "no result is under way that could be waited for"
            yield task, work(task)


class Store(Protocol):
    """Where finished blocks are kept until a graph is done."""

    def read(self, index: int) -> Mapping[int, Block]:
        """Blocks of a graph that an earlier session finished, by their first sample."""

    def keep(self, index: int, start: int, block: Block) -> None:
        """Keep a block of a graph that is not done yet."""


@dataclass(eq=False)
class _Open:
    """A graph under way."""

    graph: Graph
    blocks: dict[int, Block]
    look: int
    missing: set[int] = field(default_factory=set)


class _Sampling:
    """The tasks that are ready, and the state of every graph under way."""

    def __init__(
        self,
        graphs: Mapping[int, Graph],
        plan: Plan,
        votes_of: Callable[[Graph, Iterable[Block]], Votes],
        store: Store | None,
    ) -> None:
        self.graphs, self.plan, self.votes_of, self.store = graphs, plan, votes_of, store
        self.waiting, self.open, self.ready = deque(graphs), dict[int, _Open](), deque[Task]()

    def tasks(self) -> Iterator[Task | None]:
        """Graphs already begun come first: few are under way at any time."""
        while self.ready or self.waiting or self.open:
            if not self.ready and self.waiting:
                self._begin(self.waiting.popleft())
            else:
                yield self.ready.popleft() if self.ready else None

    def _begin(self, index: int) -> None:
        known = {} if self.store is None else dict(self.store.read(index))
        self.open[index] = _Open(self.graphs[index], known, self.plan.looks[0])
        self.ask(index)

    def ask(self, index: int) -> None:
        """Make ready what the graph's next look needs; in front, so that graphs are finished one by one."""
        state = self.open[index]
        state.missing = {start for start in range(0, state.look, BLOCK) if start not in state.blocks}
        if state.missing:
            self.ready.extendleft(BlockTask(index, state.graph, start) for start in sorted(state.missing, reverse=True))
        else:
            self.ready.appendleft(LookTask(index, self.votes(index)))

    def votes(self, index: int) -> Votes:
        """A graph's votes up to its present look."""
        state = self.open[index]
        return self.votes_of(state.graph, [state.blocks[start] for start in range(0, state.look, BLOCK)])

    def add(self, task: BlockTask, block: Block) -> int:
        """Take a block; how many samples of it are new."""
        state = self.open[task.index]
        if task.start not in state.missing:
            raise InputError(
                f"the engine must return every task once; got samples {task.start} of graph {task.index} again"
            )
        size = min(BLOCK, self.plan.most - task.start)
        if len(block[0]) != size:
            raise InputError(f"the engine must return the votes asked for; got {len(block[0])} in place of {size}")
        state.missing.remove(task.start)
        state.blocks[task.start] = block
        ends = not state.missing and state.look == self.plan.most
        if self.store is not None and not ends:  # the last block goes straight into the graph's file
            self.store.keep(task.index, task.start, block)
        return size


def sample_graphs(
    work: Callable[[Task], Any],
    graphs: Mapping[int, Graph],
    plan: Plan,
    *,
    votes_of: Callable[[Graph, Iterable[Block]], Votes],
    engine: Engine,
    store: Store | None = None,
    certified: bool = True,
    advance: Callable[[int], None] = lambda samples: None,
) -> Iterator[tuple[int, Votes, Certificate | None]]:
    """Number, votes and certificate of every graph, as they are finished.

    Args:
        work: What a worker does with a task: a :class:`BlockTask` gives a block, a :class:`LookTask` what ``plan.look`` gives.
        graphs: By number.
        plan: At how many samples to look, and when to stop.
        votes_of: Puts a graph's blocks together.
        engine: Where ``work`` is done.
        store: Where blocks are kept; by default nowhere.
        certified: Whether certificates are wanted; without, the last look, which always ends, is left out.
        advance: Called with the number of samples after each block.
    """
    sampling = _Sampling(graphs, plan, votes_of, store)
    with closing(engine.run(work, sampling.tasks())) as results:  # type: ignore[type-var]
        for task, result in results:
            index = task.index
            state = sampling.open[index]
            if isinstance(task, BlockTask):
                advance(sampling.add(task, result))
                if state.missing:
                    continue
                if certified or state.look < plan.most:
                    sampling.ready.appendleft(LookTask(index, sampling.votes(index)))
                    continue
                votes = sampling.votes(index)
            elif result is None:
                state.look = plan.after(state.look)
                sampling.ask(index)
                continue
            else:
                votes = task.votes
            del sampling.open[index]
            yield index, votes, result if certified else None
    if sampling.open or sampling.waiting:
        missing = min([*sampling.open, *sampling.waiting])
        raise InputError(f"the engine must return every task; graph {missing} has no votes")
