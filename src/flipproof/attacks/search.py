"""Attacks: the searches, taking flips back, confirmation, and the best of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from flipproof.attacks.attack_result import AttackResult, width_of
from flipproof.attacks.attack_space import Space
from flipproof.checks import checked_seed
from flipproof.defences.changed_nodes import with_changes
from flipproof.defences.target import Effort, Outcome, Target, target_of
from flipproof.errors import InputError
from flipproof.graphs import IntArray, as_graph, pairs_of_slots


@dataclass(frozen=True)
class Best:
    """The best set of flips of a search, ``[d]``."""

    flips: IntArray
    margin: float
    guide: float
    fooled: bool

    @classmethod
    def nothing(cls) -> Best:
        return cls(np.empty(0, dtype=np.int64), np.inf, np.inf, False)

    @classmethod
    def of(cls, target: Target, candidates: IntArray) -> Best:
        """The best of several candidates (rows, -1 fills up), as far as there is room to evaluate them."""
        return cls.at(None, candidates, target.evaluate(candidates))

    @classmethod
    def at(cls, place: int | None, candidates: IntArray, outcome: Outcome) -> Best:
        """The candidate at this place; ``None`` for the best."""
        if not len(outcome):
            return cls.nothing()
        place = outcome.best() if place is None else place
        row = candidates[place]
        margin, guide, fooled = (values[place].item() for values in (outcome.margins, outcome.guides, outcome.fooled))
        return cls(row[row >= 0], margin, guide, fooled)

    def better(self, other: Best) -> Best:
        """The one to prefer: a success, then the fewer flips of two successes, then the smaller guide."""
        return min(self, other, key=lambda best: (not best.fooled, best.fooled * len(best.flips), best.guide))


Search = Callable[[Target, Space, np.random.Generator], Best]
"""Looks for a set of flips within the space after which the target is fooled."""


def minimal(target: Target, flips: IntArray) -> IntArray:
    """A subset of a successful set of flips ``[d]`` that succeeds too, and of which no single flip can be taken back."""
    while count := len(flips):
        fewer = Best.of(target, np.tile(flips, (count, 1))[~np.eye(count, dtype=np.bool_)].reshape(count, count - 1))
        if not fewer.fooled:
            break
        flips = fewer.flips
    return flips


def run(name: str, search: Search, target: Target, space: Space, budget: int, seed: int) -> AttackResult:
    graph, nothing = target.graph, np.empty((1, 0), dtype=np.int64)
    if target.room == 0:
        raise InputError(f"max_calls must allow a candidate, {target.cost} calls; got {target.max_calls} (raise it)")
    best = clean = Best.of(target, nothing)
    if space.size and not clean.fooled:
        best = search(target, space, np.random.default_rng(checked_seed(seed)))
    if best.fooled and len(best.flips) > 1:
        target.max_calls = None  # taking back costs little, and is part of every attack
        best = Best.of(target, minimal(target, best.flips)[None])
    flips = pairs_of_slots(graph.slots[np.sort(best.flips[best.flips < graph.num_slots])], graph.num_nodes)
    entries = np.sort(best.flips[best.flips >= graph.num_slots]) - graph.num_slots
    attacked = with_changes(graph, entries).flipped(flips)
    # a lead too small for the search to stop at may still be a real one
    confirmed, margin = target.confirm(attacked) if best.fooled or best.margin < 0 else (None, None)
    return AttackResult(
        attack=name,
        graph=attacked,
        flips=tuple((int(u), int(v)) for u, v in flips),
        label=target.label,
        success=confirmed is True,
        confirmed=confirmed,
        alpha=target.alpha,
        budget=int(budget),
        margin_before=clean.margin,
        margin_after=best.margin if margin is None else margin,
        model_calls=target.calls,
        changes=tuple(divmod(entry, width_of(graph)) for entry in entries.tolist()),
    )


_TRIES = 256  # random sets of each size, where no number of model calls is set
_MOST_SETS = 2**20  # tried by the exhaustive search, where no number of model calls is set
_SETS_AT_ONCE = 2**14


class Attack:
    """A search for flips that change the answer; called with a model and a graph, it returns an :class:`AttackResult`."""

    def __init__(self, search: Search) -> None:
        self._search, self.__name__, self.__doc__ = search, search.__name__, search.__doc__

    def __repr__(self) -> str:
        return f"flipproof.attacks.{self.__name__}"

    def __call__(
        self,
        model: Any,
        graph: Any,
        *,
        budget: int,
        label: int | None = None,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        adds: bool = True,
        removes: bool = True,
        changes: int = 0,
        max_calls: int | None = None,
        seed: int = 0,
        samples: int = 256,
        confirm_samples: int = 10_000,
        alpha: float = 0.001,
    ) -> AttackResult:
        """The smallest attack found.

        Args:
            model: A defended classifier, or a base classifier in any form that :class:`flipproof.SmoothedClassifier` takes.
            graph: The clean graph.
            budget: Largest number of flips.
            label: Class to move away from; by default the classifier's own answer.
            num_classes, features, convention: As for :class:`flipproof.SmoothedClassifier`, for a base classifier only.
            adds: Whether edges may be added.
            removes: Whether edges may be removed.
            changes: Largest number of node labels, or of bits of the node features, that are changed beside the flips.
            max_calls: Largest number of model calls of the search, without the confirmation.
            seed: Seed of the search.
            samples: Noisy copies per candidate, of a smoothed classifier.
            confirm_samples: Fresh noisy copies that confirm a success against a smoothed classifier.
            alpha: Failure probability of that confirmation.

        >>> from flipproof import Graph
        >>> def has_triangle(graphs):
        ...     return [int((g.adjacency() @ g.adjacency() * g.adjacency()).sum() > 0) for g in graphs]
        >>> greedy(has_triangle, Graph(4, [(0, 1), (1, 2), (2, 3)]), budget=2, num_classes=2, removes=False).size
        1
        """
        graph = as_graph(graph)
        space = Space(graph, budget, adds=adds, removes=removes, changes=changes)
        own = {"num_classes": num_classes, "features": features, "convention": convention}
        target = target_of(model, graph, Effort(samples, confirm_samples, alpha, seed, max_calls), label=label, **own)
        return run(self.__name__, self._search, target, space, budget, seed)


@Attack
def random(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Try random sets of 1, 2, ..., ``budget`` flips, equally many of each size, and stop at the first size that succeeds.

    ``max_calls`` sets the number of tries.
    """
    best = Best.nothing()
    for size in range(1, space.size + 1):
        tries = _TRIES if target.room is None else -(-target.room // (space.size - size + 1))
        best = best.better(Best.of(target, space.draws(tries, size, rng)))
        if best.fooled:
            break
    return best


@Attack
def greedy(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Flip the node pair that lowers the label's margin most, until the answer changes or the budget is spent."""
    flips, best = np.empty(0, dtype=np.int64), Best.nothing()
    for _ in range(space.size):
        step = Best.of(target, space.extensions(flips, rng, limit=target.room))
        best = best.better(step)
        if best.fooled or not len(step.flips):  # the latter where no calls are left
            break
        flips = step.flips
    return best


@Attack
def exhaustive(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Try every set of 1, 2, ..., ``budget`` flips: if one succeeds, the smallest is found.

    More than a million sets are refused unless ``max_calls`` ends the search earlier.
    """
    if target.room is None and space.count > _MOST_SETS:
        raise InputError(
            f"the exhaustive attack tries at most {_MOST_SETS:,} sets of flips; here there are {space.count:,} (lower the "
            "budget, or set max_calls)"
        )
    best = Best.nothing()
    for size in range(1, space.size + 1):
        sets = space.sets(size)
        while target.room != 0 and (part := list(islice(sets, _SETS_AT_ONCE))):
            best = best.better(Best.of(target, np.array(part)))
            if best.fooled:
                return best
    return best


@Attack
def gradient(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Relax flips to numbers in [0, 1], descend the label's margin, project onto the budget, round (Xu et al., IJCAI 2019).

    Modules whose edges cannot be weighed (attention, means or maxima over neighbours) are refused, and so are graphs of more than
    400 nodes.
    """
    from flipproof.attacks.relaxation import gradient_search

    return gradient_search(target, space, rng)


@Attack
def known(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Make the attack that the defence's own evidence shows, where it shows one; otherwise it fails.

    A certificate that is found by trying flips knows the smallest attack wherever it is exact: ``radius + 1`` flips.
    ``max_calls`` limits the search for the certificate.
    """
    best, flips = Best.of(target, np.empty((1, 0), dtype=np.int64)), target.known()
    if not flips.size or flips.shape[1] > space.budget or not np.isin(flips, space.slots).all():
        return best
    return Best.of(target, flips).better(best)


_ATTACKS = {attack.__name__: attack for attack in (random, greedy, exhaustive, gradient, known)}

NAMES = tuple(_ATTACKS)


def by_name(name: str) -> Attack:
    """The attack of this name, one of ``NAMES``."""
    if name not in _ATTACKS:
        raise InputError(f"attacks must be among {', '.join(NAMES)}; got {name!r}")
    return _ATTACKS[name]


def strongest(
    model: Any,
    graph: Any,
    *,
    budget: int,
    attacks: Sequence[str] = ("greedy", "random"),
    label: int | None = None,
    num_classes: int | None = None,
    features: Any = None,
    convention: str | None = None,
    adds: bool = True,
    removes: bool = True,
    changes: int = 0,
    max_calls: int | None = None,
    seed: int = 0,
    samples: int = 256,
    confirm_samples: int = 10_000,
    alpha: float = 0.001,
) -> AttackResult:
    """The smallest successful attack of several; if none succeeds, the one that came nearest.

    After a success of ``k`` flips the next attacks look for ``k - 1``. Against a smoothed classifier ``alpha`` covers all of
    them together. ``model_calls`` of the result is their sum.

    Args:
        model, graph, budget: As for every :class:`Attack`.
        attacks: Names, in order.
        label, num_classes, features, convention, adds, removes, changes, max_calls, seed: As for every :class:`Attack`.
        samples, confirm_samples, alpha: As for every :class:`Attack`.
    """
    options = {name: value for name, value in locals().items() if name not in ("model", "graph", "budget", "attacks")}
    if isinstance(attacks, str) or not attacks:
        raise InputError(f"attacks must be a list of names among {', '.join(NAMES)}; got {attacks!r}")
    methods = [by_name(name) for name in attacks]
    options["alpha"] = alpha / len(methods)
    best: AttackResult | None = None
    calls, left = 0, budget
    for method in methods:
        result = method(model, graph, budget=left, **options)
        calls += result.model_calls
        if result.success or best is None or (not best.success and result.margin_after < best.margin_after):
            best = result
        if best.success:
            left = best.size - 1
        if left < 0 or left + changes < 1:
            break
    assert best is not None
    return replace(best, budget=budget, model_calls=calls, alpha=best.alpha * len(methods))
