"""Asking a defended classifier about many graphs, on any engine; or about one huge graph, in pieces, on all workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.evidence import Evidence
from flipproof.engines import Engine, ThisProcess
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.progress import note, progress

if TYPE_CHECKING:
    from flipproof.defences.defence import DefendedClassifier, Run


def ask_all(
    classifier: DefendedClassifier,
    request: Any,
    graphs: Mapping[int, Graph],
    *,
    chosen: Iterable[int] | None = None,
    engine: Engine | None = None,
    read: bool = True,
    quiet: bool = True,
) -> Iterator[tuple[int, Evidence, Certificate | None]]:
    """Number, evidence and certificate of every graph, as they are finished.

    A graph that is alone is split among the workers. The classifier has checked the graphs ahead.
    """
    run: Run = map
    engine, numbers = engine or ThisProcess(), list(graphs if chosen is None else chosen)
    if 2 * len(numbers) <= getattr(engine, "workers", 1):
        run, engine = partial(_split, engine, quiet), ThisProcess()
    work, missing, differing, compared = partial(_ask, classifier, request, read, run), set(numbers), 0, 0
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
    classifier: DefendedClassifier, request: Any, read: bool, run: Run, task: tuple[int, Graph]
) -> tuple[Evidence, Certificate | None]:
    """Evidence and certificate of one graph; whatever a user's own model raises becomes one sentence."""
    index, graph = task
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


def _split(engine: Engine, quiet: bool, work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
    """As ``map``, for pieces of work on one graph, on all workers of an engine."""
    tasks, results = list(enumerate(pieces)), dict[int, Any]()
    if len(tasks) < 2:
        return [work(piece) for _, piece in tasks]
    with progress("asking about one graph", len(tasks), unit="pieces", quiet=quiet) as advance:
        for (place, _), result in engine.run(lambda task: work(task[1]), tasks):
            results[place] = result
            advance(1)
    return [results[place] for place, _ in tasks]
