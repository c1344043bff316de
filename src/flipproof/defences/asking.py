"""Many graphs asked about on any engine. The graph is the unit of work; one that is alone is split among the workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipproof.certificates.certificate import Certificate, Evidence
from flipproof.classifiers.guard import ShortcutDisagrees
from flipproof.engines import Engine, ThisProcess
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.progress import progress

if TYPE_CHECKING:
    from flipproof.defences.defence import DefendedClassifier, Run


@dataclass(frozen=True, eq=False)
class AskWork:
    """Asks about a graph, and reads its certificate.

    Attributes:
        classifier: Has checked the graphs, or checked them ahead.
        request: What is asked.
        read: Whether certificates are wanted.
        own_model: Whether the model is a user's own: whatever it raises then becomes one sentence.
        run: Where pieces of work on one graph are done.
    """

    classifier: DefendedClassifier
    request: Any
    read: bool = True
    own_model: bool = False
    run: Run = map

    def in_worker(self) -> AbstractContextManager[None]:
        """One thread for the model: a worker has one core."""
        return self.classifier.classifier.one_thread()

    def __call__(self, task: tuple[int, Graph]) -> tuple[Evidence, Certificate | None]:
        index, graph = task
        try:
            self.classifier.try_on(graph)
            evidence = self.classifier.defence.ask(self.classifier, graph, self.request, self.run)
        except (InputError, OSError, MemoryError):
            raise
        except Exception as error:
            if not self.own_model:
                raise
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            raise InputError(f"the model failed on graph {index} with {reason} (correct it, and run again)") from error
        return evidence, self.request.read(evidence) if self.read else None


@dataclass(frozen=True, eq=False)
class _Numbered:
    """A piece of work on one graph, with its place; workers are prepared as for whole graphs."""

    work: Callable[[Any], Any]
    in_worker: Callable[[], AbstractContextManager[None]]

    def __call__(self, task: tuple[int, Any]) -> Any:
        return self.work(task[1])


def split_over(engine: Engine, classifier: DefendedClassifier, *, quiet: bool = True) -> Run:
    """As ``map``, on all workers of an engine."""

    def run(work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
        tasks = list(enumerate(pieces))
        if len(tasks) < 2:
            return [work(piece) for _, piece in tasks]
        results: dict[int, Any] = {}
        with progress("asking about one graph", len(tasks), unit="pieces", quiet=quiet) as advance:
            for (place, _), result in engine.run(_Numbered(work, classifier.classifier.one_thread), tasks):
                results[place] = result
                advance(1)
        return [results[place] for place, _ in tasks]

    return run


def ask_all(
    classifier: DefendedClassifier,
    request: Any,
    graphs: Mapping[int, Graph],
    *,
    chosen: Iterable[int] | None = None,
    engine: Engine | None = None,
    read: bool = True,
    own_model: bool = False,
    quiet: bool = True,
    restart: Callable[[], Iterable[int]] | None = None,
) -> Iterator[tuple[int, Evidence, Certificate | None]]:
    """Number, evidence and certificate of every graph, as they are finished.

    Where a shortcut to the model proves to give other answers than the model itself, all graphs are asked about again, with the
    model itself: a graph can then come twice, and the last time counts.

    Args:
        classifier: Has checked the graphs, or checked them ahead: the model is tried on those on which it was not tried yet.
        request: What is asked.
        graphs: By number; each is looked up when its turn comes.
        chosen: Numbers of those to ask about; by default all.
        engine: Where the work is done; by default this process.
        read: Whether certificates are wanted.
        own_model: Whether the model is a user's own; see :class:`AskWork`.
        quiet: Show no progress of a graph that is split among workers.
        restart: Called before all is asked again: forgets what is stored, and says which graphs to ask about; by default those
            chosen.
    """
    numbers, options = list(graphs if chosen is None else chosen), (engine or ThisProcess(), read, own_model, quiet)
    try:
        yield from _ask_each(classifier, request, graphs, numbers, *options)
    except ShortcutDisagrees as error:
        classifier.take_no_shortcuts(list(graphs.values()), error.remark)
        numbers = numbers if restart is None else list(restart())
        yield from _ask_each(classifier, request, graphs, numbers, *options)


def _ask_each(
    classifier: DefendedClassifier,
    request: Any,
    graphs: Mapping[int, Graph],
    numbers: Sequence[int],
    where: Engine,
    read: bool,
    own_model: bool,
    quiet: bool,
) -> Iterator[tuple[int, Evidence, Certificate | None]]:
    run: Any = map
    if 2 * len(numbers) <= getattr(where, "workers", 1):
        run = split_over(where, classifier, quiet=quiet)
        where = ThisProcess()
    work, missing = AskWork(classifier, request, read, own_model, run), set(numbers)
    with closing(where.run(work, ((index, graphs[index]) for index in numbers))) as results:  # type: ignore[type-var]
        for (index, _), (evidence, certificate) in results:
            if index not in missing:
                raise InputError(f"the engine must return every task once; got graph {index} again")
            missing.remove(index)
            yield index, evidence, certificate
    if missing:
        raise InputError(f"the engine must return every task; graph {min(missing)} has no answer")


@dataclass(frozen=True, eq=False)
class AnswerWork:
    """The answer about a graph, without a certificate."""

    classifier: DefendedClassifier

    def in_worker(self) -> AbstractContextManager[None]:
        """One thread for the model: a worker has one core."""
        return self.classifier.classifier.one_thread()

    def __call__(self, task: tuple[int, Graph]) -> int | None:
        return self.classifier.defence.answer(self.classifier, task[1])
