"""Which candidates can withstand the attack at all, with as many samples, flips or calls as are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flipproof.certificates.metrics import withstands
from flipproof.datasets import Dataset
from flipproof.errors import InputError
from flipproof.studies.candidate import Candidate

__all__ = ["Attack", "reachable_candidates"]

Attack = int | tuple[int, int]


def reachable_candidates(
    candidates: Sequence[Candidate], graphs: Dataset, attack: Attack, asked: Mapping[str, Any]
) -> tuple[tuple[Candidate, ...], str]:
    """The candidates that could be certified against the attack on some of the graphs, and a sentence about the others, if any.

    Args:
        candidates: To choose from.
        graphs: To be certified.
        attack: Any so many flips, or (additions, removals).
        asked: What is asked of all candidates.
    """
    most = max((graph.num_slots for graph in graphs), default=0)
    if isinstance(attack, int) and attack > most:
        raise InputError(
            f"no graph has room for {_words(attack)}: the largest one has {_counted(most, 'node pair')} (ask for less)"
        )
    kept = tuple(candidate for candidate in candidates if _within_reach(candidate, graphs, attack, asked))
    if candidates and not kept:
        raise InputError(
            f"no candidate can be certified against {_words(attack)} with these settings, even if the model never changes its "
            "answer (raise --samples or --alpha, take more noise or more groups, or ask for less)"
        )
    left = ", ".join(candidate.title for candidate in candidates if candidate not in kept)
    return kept, f"{_words(attack)} out of reach with these settings, hence left out: {left}" if left else ""


def _within_reach(candidate: Candidate, graphs: Dataset, attack: Attack, asked: Mapping[str, Any]) -> bool:
    """Whether a model that never changes its answer would be certified against the attack, on a small, usual or large graph."""
    ordered = sorted(graphs, key=lambda graph: graph.num_slots)
    question = candidate.question(asked, graphs=len(graphs))
    for graph in dict.fromkeys((ordered[len(ordered) // 2], ordered[0], ordered[-1])):
        best = candidate.defence.best(graph, question, candidate.settings, graphs.num_classes)
        if best is None:
            return True
        if (
            best.radius >= attack
            if isinstance(attack, int)
            else withstands(best, graph, adds=attack[0], removes=attack[1])
        ):
            return True
    return False


def _words(attack: Attack) -> str:
    if isinstance(attack, int):
        return _counted(attack, "flip")
    return f"{_counted(attack[0], 'addition')} and {_counted(attack[1], 'removal')}"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"
