"""Asking about many graphs on any engine, or about one huge graph in pieces, which can be kept so that a stopped run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.engines import Engine, ThisProcess
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.progress import Progress, note, progress, watched

if TYPE_CHECKING:
    from flipproof.defences.defence import DefendedClassifier, Run


class Kept(Protocol):
    """Pieces of work on a graph that are done, by their place."""

    def of(self, index: int) -> dict[int, tuple[Any, ...]]: ...

    def keep(self, index: int, place: int, result: tuple[Any, ...]) -> None: ...


def ask_all(
    classifier: DefendedClassifier,
    request: Any,
    graphs: Mapping[int, Graph],
    *,
    chosen: Iterable[int] | None = None,
    engine: Engine | None = None,
    read: bool = True,
    kept: Kept | None = None,
    quiet: bool = True,
) -> Iterator[tuple[int, Evidence, Certificate | None]]:
    """Number, evidence and certificate of every graph, which the classifier has checked, as they are finished; a graph that is
    alone is split among the workers, and its pieces are ``kept``."""
    split: Callable[..., list[Any]] | None = None
    engine, numbers = engine or ThisProcess(), list(graphs if chosen is None else chosen)
    kept = kept if classifier.defence.evidence.in_blocks else None
    if 2 * len(numbers) <= getattr(engine, "workers", 1):
        split, engine = partial(_split, engine, quiet, kept), ThisProcess()
    elif len(numbers) == 1 and kept is not None and isinstance(engine, ThisProcess):
        split = partial(_split, ThisProcess(), quiet, kept)
    work, missing, differing, compared = partial(_ask, classifier, request, read, split), set(numbers), 0, 0
    with closing(engine.run(work, ((index, graphs[index]) for index in numbers))) as results:  # type: ignore[type-var]
        for (index, _), (evidence, certificate) in results:
            if index not in missing:
                raise InputError(f"the engine must return every task once; got graph {index} again")
            missing.remove(index)
            differing, compared = differing + evidence.differing, compared + evidence.compared
            yield index, evidence, certificate
    if missing:
        raise InputError(f"the engine must return every task; graph {min(missing)} has no answer")
    say_differing(differing, compared)


def say_differing(differing: int, compared: int) -> None:
    """Say that a shortcut answered otherwise than its model, about graphs that no probe before the run resembles."""
    if differing:
        note(
            f"the shortcut to the model answered otherwise than the model itself about {differing:,} of {compared:,} compared "
            "samples; certificates are those of the shortcut's answers (model.dense_twin = False asks the model itself)"
        )


def _ask(
    classifier: DefendedClassifier,
    request: Any,
    read: bool,
    split: Callable[..., list[Any]] | None,
    task: tuple[int, Graph],
) -> tuple[Evidence, Certificate | None]:
    """Evidence and certificate of one graph; whatever a user's own model raises becomes one sentence."""
    index, graph = task
    run: Run = map if split is None else partial(split, index)
    try:
        classifier.try_on(graph)
        evidence = classifier.defence.ask(classifier, graph, request, run)
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        if type(classifier.model).__module__.startswith("flipproof."):
            raise
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise InputError(f"the model failed on graph {index} with {reason} (correct it, and run again)") from error
    return evidence, request.read(evidence) if read else None


def _split(
    engine: Engine, quiet: bool, kept: Kept | None, index: int, work: Callable[[Any], Any], pieces: Iterable[Any]
) -> list[Any]:
    """As ``map``, for pieces of work on one graph, on all workers of an engine; those that are kept are not done again."""
    tasks = list(enumerate(pieces))
    if len(tasks) < 2:
        return [work(piece) for _, piece in tasks]
    results: dict[int, Any] = {} if kept is None else kept.of(index)
    missing, done = [task for task in tasks if task[0] not in results], len(results)
    if done:
        note(f"continuing: {done} of {len(tasks)} pieces of one graph are done", quiet=quiet)
    with progress("asking about one graph", len(tasks), unit="pieces", quiet=quiet, done=done) as advance:
        for (place, _), result in engine.run(lambda task: work(task[1]), missing):
            results[place] = result
            if kept is not None:
                kept.keep(index, place, result)
            advance(1)
    return [results[place] for place, _ in tasks]


def in_order(work: str, results: Iterable[tuple[int, Any]], number: int, watcher: Progress) -> list[Any]:
    """Results by number, in the order of the numbers."""
    done = dict[int, Any]()
    with watched(watcher, work, number, unit="graphs") as advance:
        for index, result in results:
            done[index] = result
            advance(1)
    return [done[index] for index in range(number)]
