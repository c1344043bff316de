"""Attacks: what an attacker may do, the searches, taking flips back, confirmation, and the best of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice, product
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates.metrics import shares
from flipproof.checks import checked_count, checked_seed
from flipproof.defences.baselines import Undefended
from flipproof.defences.changed_nodes import changeable, with_changes
from flipproof.defences.defence import DefendedClassifier
from flipproof.defences.target import Effort, Outcome, Target
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, as_graph, pairs_of_slots, slots_of_pairs


@dataclass(frozen=True)
class AttackResult:
    """The smallest attack that was found on one graph; if none succeeded, the one that came nearest.

    A success says that no certificate of the same classifier and label can reach ``size`` flips.
    """

    attack: str
    graph: Graph = field(repr=False)  # after the attack
    flips: tuple[tuple[int, int], ...]  # node pairs, each once, u < v, sorted
    label: int  # the class that the classifier was to leave
    success: bool  # whether it did
    confirmed: (
        bool | None
    )  # on a second look, with fresh noise where the defence samples; None if there was nothing to confirm
    alpha: float  # probability with which a false success is confirmed; 0 where nothing is sampled
    budget: int
    margin_before: float  # lead of the label over its strongest rival, in logits or in shares of votes
    margin_after: float
    model_calls: int  # graphs that the model was asked about
    changes: tuple[tuple[int, int], ...] = ()  # nodes and their new labels, or nodes and the bits that flip, sorted

    @property
    def size(self) -> int:
        """The number of flips; changes of node features come on top."""
        return len(self.flips)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON; the attacked graph is the clean one after ``flips`` and ``changes``."""
        pairs = {name: [list(pair) for pair in getattr(self, name)] for name in ("flips", "changes")}
        rest = {name: value for name, value in vars(self).items() if name not in ("attack", "graph", *pairs)}
        return {"attack": self.attack, **pairs, "size": self.size, **rest}

    @classmethod
    def from_dict(cls, graph: Graph, values: Mapping[str, Any]) -> AttackResult:
        """What :meth:`to_dict` gave as ``values``, with the clean ``graph``."""
        flips, changes = (tuple((int(u), int(v)) for u, v in values.get(name, ())) for name in ("flips", "changes"))
        rest = {key: value for key, value in values.items() if key not in ("flips", "changes", "size")}
        entries = np.array([node * _width(graph) + column for node, column in changes], dtype=np.int64)
        return cls(graph=with_changes(graph, entries).flipped(flips), flips=flips, changes=changes, **rest)


def _width(graph: Graph) -> int:
    return 1 if graph.node_features is None else graph.node_features.shape[1]


def robust_accuracy(
    results: Sequence[AttackResult], labels: ArrayLike, radii: Iterable[int] = range(6)
) -> NDArray[np.float64]:
    """Share of graphs that are still right after the attacks of at most ``r`` flips that were found, for each ``r`` in ``radii``.

    An upper bound on the accuracy under the worst attack: a better search can only lower it. There is one label per result, and
    a graph counts as wrong if the attacked label is not this one (the answer was wrong before any attack).
    """
    truth = np.asarray(labels)
    if truth.shape != (len(results),) or not len(results):
        raise InputError(
            f"labels must be one per result, [{len(results)}], at least one; got shape {truth.shape} "
            "(pass [graph.label for graph in graphs])"
        )
    withstood = np.array([result.size - 1 if result.success else np.iinfo(np.int64).max for result in results])
    return shares(np.where(np.array([result.label for result in results]) == truth, withstood, -1), radii)


_MOST_CANDIDATES = 20_000  # single steps tried at once; of more, a random part
_MOST_AT_NODE = 64  # the same of a node; half of them take edges or bits away
_MOST_SLOTS = 2**25  # of a graph whose nodes are attacked: positions are numbers of node pairs


def _neighbourhood(graph: Graph) -> IntArray:
    """The node that is meant, and its neighbours."""
    assert graph.node is not None
    return np.unique(np.append(graph.edges[(graph.edges == graph.node).any(axis=1)], graph.node))


def _places_at(nodes: IntArray, graph: Graph) -> IntArray:
    """Places among the slots of all pairs at these nodes, ascending."""
    if graph.num_slots > _MOST_SLOTS:
        raise InputError(
            f"attacks on nodes need a graph of at most {_MOST_SLOTS:,} node pairs; got {graph.num_slots:,} (attack in a "
            "smaller graph)"
        )
    pairs = np.stack([np.repeat(nodes, graph.num_nodes), np.tile(np.arange(graph.num_nodes), len(nodes))], axis=1)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    slots = np.setdiff1d(slots_of_pairs(pairs, graph.num_nodes), graph.frozen_slots)
    return np.searchsorted(graph.slots, slots)


class Space:
    """The flips and changes that an attacker may make on a graph, as positions (see :mod:`flipproof.defences.target`).

    Of a graph with a node that is meant, those at the node or a neighbour of it: others rarely count.

    A set has at most ``budget`` of the ``slots`` and ``changes`` of the ``entries`` of node features, of which the labels of one
    node exclude each other. Frozen pairs of the graph are never touched.
    """

    def __init__(self, graph: Graph, budget: int, *, adds: bool = True, removes: bool = True, changes: int = 0) -> None:
        if not (adds or removes):
            raise InputError("an attacker must be allowed to add or to remove edges; got adds=False, removes=False")
        near = None if graph.node is None else _neighbourhood(graph)
        places = np.arange(graph.num_slots) if near is None else _places_at(near, graph)
        self.slots: IntArray = places[np.where(graph.slot_states[places], removes, adds)]
        self.budget = min(checked_count(budget, "budget", 0, "for instance 5"), len(self.slots))
        cells = changeable(graph) if checked_count(changes, "changes", 0, "for instance 1") else np.zeros((0, 1))
        self._first, self._width = graph.num_slots, 1 if cells.all() else cells.shape[1]
        if near is not None and changes:
            cells = np.where(np.isin(np.arange(len(cells)), near)[:, None], cells, False)
        self.entries: IntArray = np.flatnonzero(cells) + self._first
        self._graph = graph
        self.columns: IntArray = np.concatenate([self.slots, self.entries])
        self.changes = min(changes, len(np.unique(self._units(self.entries))))
        self.size = self.budget + self.changes

    def _units(self, positions: IntArray) -> IntArray:
        """What each position changes: a pair, a bit, or the label of a node."""
        entries = positions - self._first
        return np.where(entries < 0, positions, self._first + entries // self._width)

    def first_fitting(self, order: IntArray) -> IntArray:
        """The first of these positions that fit into a set, in their order."""
        if self.changes:
            order = order[np.sort(np.unique(self._units(order), return_index=True)[1])]
        entry = order >= self._first
        rank, most = np.where(entry, entry.cumsum(), (~entry).cumsum()), np.where(entry, self.changes, self.budget)
        return order[rank <= most]

    def sets(self, size: int) -> Iterator[tuple[int, ...]]:
        """All sets of this size."""
        for changes in range(max(0, size - self.budget), min(size, self.changes) + 1):
            parts = combinations(self.slots.tolist(), size - changes), combinations(self.entries.tolist(), changes)
            for flips, entries in product(*parts):
                if len(np.unique(self._units(np.array(entries, dtype=np.int64)))) == changes:
                    yield flips + entries

    @property
    def count(self) -> int:
        """The number of sets with at least one member, or more."""
        sizes = product(range(self.budget + 1), range(self.changes + 1))
        return sum(comb(len(self.slots), flips) * comb(len(self.entries), changes) for flips, changes in sizes) - 1

    def extensions(self, flips: IntArray, rng: np.random.Generator, *, limit: int | None = None) -> IntArray:
        """All sets with one member more than this one ``[d]``, ``[K, d + 1]``. Of more than ``limit``, a random part."""
        most = _MOST_CANDIDATES if self._graph.node is None else _MOST_AT_NODE
        most = most if limit is None else min(most, limit)
        changes = int((flips >= self._first).sum())
        rooms = (self.slots, self.budget - len(flips) + changes), (self.entries, self.changes - changes)
        further = np.concatenate([self.slots[:0], *(positions for positions, room in rooms if room > 0)])
        further = further[~np.isin(self._units(further), self._units(flips))]
        taken_away = further[:0]
        if len(further) > most and self._graph.node is not None:
            taken_away = rng.permutation(further[self._there(further)])[: most // 2]
            further = np.setdiff1d(further, taken_away)
        if len(further) + len(taken_away) > most:
            further = np.append(taken_away, rng.choice(further, most - len(taken_away), replace=False))
        return np.column_stack([np.tile(flips, (len(further), 1)), further])

    def _there(self, positions: IntArray) -> NDArray[np.bool_]:
        """Whether positions hold an edge, or a 1."""
        entries, features = positions - self._first, self._graph.node_features
        there = self._graph.slot_states[np.minimum(positions, self._first - 1)]
        return there if features is None else np.where(entries < 0, there, features.ravel()[np.maximum(entries, 0)] > 0)

    def draws(self, count: int, size: int, rng: np.random.Generator) -> IntArray:
        sets = [self.first_fitting(rng.permutation(self.columns))[:size] for _ in range(count)]
        return np.array(sets, dtype=np.int64).reshape(count, size)


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


def target_of(model: Any, graph: Graph, effort: Effort, *, label: int | None = None, **own: Any) -> Target:
    """What a user means to attack: a defended classifier with its defence, anything else as it is with its ``own`` arguments."""
    arguments = {key: value for key, value in own.items() if value is not None}
    if not isinstance(model, DefendedClassifier):
        model = Undefended(model, **arguments)
    elif arguments:
        name, value = next(iter(arguments.items()))
        raise InputError(f"a {type(model).__name__} has its own {name}; got {value!r} (leave it out)")
    target: Target = model.defence.target(model, graph, effort)
    target.aim(label)
    return target


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
        raise InputError(
            f"max_calls must allow at least one candidate, {target.cost} calls; got {target.max_calls} (raise it)"
        )
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
        changes=tuple(divmod(entry, _width(graph)) for entry in entries.tolist()),
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
            label: Class to be left; by default the classifier's own answer.
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
