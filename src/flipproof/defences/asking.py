"""Many graphs asked about at a time, piece by piece, on any engine; each graph until its defence has all it needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.classifiers.classifier import ShortcutDisagrees
from flipproof.defences.defence import Defence, Request
from flipproof.engines import Engine, GraphTask, ThisProcess
from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = ["AskWork", "PieceStore", "PredictWork", "ask_all"]


class Trial(Enum):
    """The task of trying the model on a graph; the same object in every process."""

    TRIAL = "trial"


TRIAL = Trial.TRIAL


class PieceStore(Protocol):
    """Where finished pieces are kept until their graph is done."""

    def pieces(self, item: int) -> dict[str, bytes]:
        """The pieces of a graph that an earlier session finished, by key."""

    def keep(self, item: int, key: str, content: bytes) -> None:
        """Keep a piece of a graph that is not done yet."""


@dataclass(frozen=True, eq=False)
class AskWork:
    """What a worker does: a piece of work, or the reading of a certificate from finished evidence.

    Attributes:
        defence: Knows the model.
        question: What is asked.
        own_model: Whether the model is a user's own: whatever it raises then becomes one sentence.
    """

    defence: Defence
    question: Any
    own_model: bool = False

    def in_worker(self) -> AbstractContextManager[None]:
        """One thread for the model: a worker has one core."""
        return self.defence.classifier.one_thread()

    def __call__(self, task: GraphTask) -> Any:
        if isinstance(task.request, Evidence):
            return self.question.read(task.request)
        try:
            if task.request is TRIAL:
                return self.defence.try_on(task.graph)
            return self.defence.work(task.graph, self.question, task.request)
        except (InputError, OSError, MemoryError):
            raise
        except Exception as error:
            if not self.own_model:
                raise
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            raise InputError(
                f"the model failed on graph {task.index} with {reason} (correct it, and run again)"
            ) from error


@dataclass(frozen=True, eq=False)
class PredictWork:
    """The answer about a graph; ``asked`` are arguments of :meth:`Defence.predict`."""

    defence: Defence
    asked: Mapping[str, Any]

    def in_worker(self) -> AbstractContextManager[None]:
        """One thread for the model: a worker has one core."""
        return self.defence.classifier.one_thread()

    def __call__(self, task: tuple[int, Graph]) -> int | None:
        return self.defence.predict(task[1], **self.asked)


@dataclass(eq=False)
class _Open:
    """A graph under way."""

    graph: Graph
    pieces: dict[str, Any]  # bytes; or the evidence itself, where it is one piece
    missing: dict[str, Request] = field(default_factory=dict)
    evidence: Evidence | None = None


class _Asking:
    """The tasks that are ready, and the state of every graph under way."""

    def __init__(
        self,
        work: AskWork,
        graphs: Mapping[int, Graph],
        chosen: Iterable[int],
        store: PieceStore | None,
        read: bool,
    ) -> None:
        self.work, self.graphs, self.store, self.read = work, graphs, store, read
        self.waiting, self.open, self.ready = deque(chosen), dict[int, _Open](), deque[GraphTask]()
        self.done = deque[tuple[int, Evidence]]()

    def tasks(self) -> Iterator[GraphTask | None]:
        """Graphs already begun come first: few are under way at any time."""
        while self.ready or self.waiting or self.open:
            if self.ready:
                yield self.ready.popleft()
            elif self.waiting:
                index = self.waiting.popleft()
                graph = self.graphs[index]
                self.open[index] = _Open(graph, {} if self.store is None else self.store.pieces(index))
                if self.work.defence.untried(graph):
                    self.ready.append(GraphTask(index, graph, TRIAL))
                else:
                    self.go_on(index)
            else:
                yield None

    def go_on(self, index: int) -> None:
        """Make ready what the graph needs next; in front, so that graphs are finished one by one."""
        state, work = self.open[index], self.work
        requests = work.defence.tasks(state.graph, work.question, state.pieces)
        state.missing = {request.key: request for request in requests}
        if requests:
            self.ready.extendleft(GraphTask(index, state.graph, request) for request in reversed(requests))
            return
        state.evidence = work.defence.evidence(state.graph, work.question, state.pieces)
        if self.read:
            self.ready.appendleft(GraphTask(index, state.graph, state.evidence))
        else:
            del self.open[index]
            self.done.append((index, state.evidence))

    def tried(self, task: GraphTask) -> None:
        """The model was not refused on a graph: it can be asked about."""
        self.work.defence.passed(task.graph)
        self.go_on(task.index)

    def add(self, task: GraphTask, piece: bytes | Evidence) -> int:
        """Take a piece; how much progress it is."""
        state, request = self.open[task.index], task.request
        if request.key not in state.missing:
            raise InputError(f"the engine must return every task once; got {request.key} of graph {task.index} again")
        del state.missing[request.key]
        state.pieces[request.key] = piece
        if not state.missing:
            self.go_on(task.index)
        # the last piece goes straight into the graph's evidence
        if self.store is not None and state.evidence is None and isinstance(piece, bytes):
            self.store.keep(task.index, request.key, piece)
        return int(request.amount)


def ask_all(
    defence: Defence,
    question: Any,
    graphs: Mapping[int, Graph],
    *,
    chosen: Iterable[int] | None = None,
    engine: Engine | None = None,
    store: PieceStore | None = None,
    read: bool = True,
    own_model: bool = False,
    advance: Callable[[int], None] = lambda amount: None,
    restart: Callable[[], Iterable[int]] | None = None,
) -> Iterator[tuple[int, Evidence, Certificate | None]]:
    """Number, evidence and certificate of every graph, as they are finished.

    Where a shortcut to the model proves to give other answers than the model itself, all graphs are asked about again, with the
    model itself: a graph can then come twice, and the last time counts.

    Args:
        defence: Has checked the graphs, or checked them ahead: the model is tried on those on which it was not tried yet.
        question: What is asked.
        graphs: By number; each is looked up when its turn comes.
        chosen: Numbers of those to ask about; by default all.
        engine: Where the work is done; by default this process.
        store: Where pieces are kept; by default nowhere.
        read: Whether certificates are wanted.
        own_model: Whether the model is a user's own; see :class:`AskWork`.
        advance: Called with the progress that each piece is.
        restart: Called before all is asked again: forgets what is stored, and says which graphs to ask about; by default those
            chosen.
    """
    work, begun = AskWork(defence, question, own_model), graphs if chosen is None else list(chosen)
    try:
        yield from _asked_about(work, graphs, begun, engine, store, read, advance)
    except ShortcutDisagrees as error:
        defence.take_no_shortcuts(list(graphs.values()), error.remark)
        yield from _asked_about(work, graphs, begun if restart is None else restart(), engine, store, read, advance)


def _asked_about(
    work: AskWork,
    graphs: Mapping[int, Graph],
    chosen: Iterable[int],
    engine: Engine | None,
    store: PieceStore | None,
    read: bool,
    advance: Callable[[int], None],
) -> Iterator[tuple[int, Evidence, Certificate | None]]:
    asking = _Asking(work, graphs, chosen, store, read)
    with closing((engine or ThisProcess()).run(work, asking.tasks())) as results:  # type: ignore[type-var]
        for task, result in results:
            if isinstance(task.request, Evidence):
                del asking.open[task.index]
                yield task.index, task.request, result
            elif task.request is TRIAL:
                asking.tried(task)
            else:
                advance(asking.add(task, result))
            while asking.done:
                yield *asking.done.popleft(), None
    while asking.done:  # all pieces were there already
        yield *asking.done.popleft(), None
    if asking.open or asking.waiting:
        missing = min([*asking.open, *asking.waiting])
        raise InputError(f"the engine must return every task; graph {missing} has no answer")
