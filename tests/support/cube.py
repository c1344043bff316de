"""Small graphs whose every noisy version is listed: exact shares of votes, and exact means of the lead test's statistic."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.neighbors import KNeighborsClassifier

from flipproof import EdgeNoise, Graph
from flipproof.certificates.influence.lead_test import Attack, Cells, Kind
from flipproof.certificates.sampled_votes import Votes
from flipproof.noise import SampleStream
from support.certificates import votes_of

Labels = NDArray[np.int64]


@lru_cache(maxsize=16)
def all_states(slots: int) -> NDArray[np.bool_]:
    """Every state of so many slots, ``[2**slots, slots]``; row ``k`` holds the binary digits of ``k``."""
    return (np.arange(2**slots)[:, None] >> np.arange(slots) & 1).astype(np.bool_)


@lru_cache(maxsize=16)
def attacks_between(slots: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Additions and removals that lead from each graph to each other, ``[2**N, 2**N]`` both."""
    states = all_states(slots).astype(np.int64)
    return (1 - states) @ states.T, states @ (1 - states).T


@lru_cache(maxsize=16)
def laws(slots: int, noise: EdgeNoise) -> NDArray[np.float64]:
    """``[x, z]``: the probability that the noisy version of ``x`` is ``z``."""
    states = all_states(slots)
    return Cube(noise, states[0], np.zeros(len(states), dtype=np.int64), 2).law(states)


@dataclass(frozen=True)
class Cube:
    """A clean graph's slots, the noise, and a label for every state."""

    noise: EdgeNoise
    clean: NDArray[np.bool_]
    labels: Labels
    num_classes: int

    @property
    def slots(self) -> int:
        return len(self.clean)

    def law(self, states: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Probability of every noisy version of graphs with these states, ``[..., 2**N]``."""
        edge = np.where(states, 1 - self.noise.p_remove, self.noise.p_add)
        law = np.ones((*states.shape[:-1], 1))
        for slot in range(self.slots):  # slot k is binary digit k, so it comes in front
            digit = np.stack([1 - edge[..., slot], edge[..., slot]], axis=-1)
            law = (digit[..., :, None] * law[..., None, :]).reshape(*states.shape[:-1], -1)
        return law

    def shares_after(self, states: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Share of every class for graphs with these states, ``[..., C]``."""
        return np.stack([self.law(states) @ (self.labels == c) for c in range(self.num_classes)], axis=-1)

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        return self.shares_after(self.clean)

    def influences(self, label: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Exact Pr(label), and Pr(label, slot flipped) for every slot."""
        mass = self.law(self.clean) * (self.labels == label)
        return mass.sum(), mass @ (all_states(self.slots) ^ self.clean)

    def attacks(self, flips: int) -> Iterator[tuple[int, int, NDArray[np.bool_]]]:
        """Additions, removals, and the states of the attacked graphs with so many of each: ``[sets, N]``."""
        kinds: dict[tuple[int, int], list[NDArray[np.bool_]]] = {}
        for chosen in itertools.combinations(range(self.slots), flips):
            attacked = self.clean.copy()
            attacked[list(chosen)] ^= True
            removes = int(self.clean[list(chosen)].sum())
            kinds.setdefault((flips - removes, removes), []).append(attacked)
        for (adds, removes), states in kinds.items():
            yield adds, removes, np.array(states)

    def least_leads(self, flips: int) -> dict[tuple[int, int], NDArray[np.float64]]:
        """For every kind of attack the least lead of the top class over each class, ``[C]`` (infinite for itself)."""
        top = int(np.argmax(self.shares))
        least = {}
        for adds, removes, states in self.attacks(flips):
            shares = self.shares_after(states)
            leads = (shares[:, [top]] - shares).min(axis=0)
            leads[top] = np.inf
            least[adds, removes] = leads
        return least

    def radius(self) -> int:
        """The true radius of the smoothed classifier, by trying every attack; -1 for a tie of the two top classes."""
        ranked = np.sort(self.shares)
        if ranked[-1] <= ranked[-2]:
            return -1
        radius = 0
        while radius < self.slots and min(lead.min() for lead in self.least_leads(radius + 1).values()) > 0:
            radius += 1
        return radius

    def votes(self, samples: int, seed: int) -> Votes:
        """Sampled votes, as a smoothed classifier would cast them on the graph with these slots."""
        flips = SampleStream(self.graph, self.noise, seed=seed).flips(0, samples)
        labels = self.labels[(flips ^ self.clean) @ (1 << np.arange(self.slots))]
        return votes_of(labels, self.graph, self.noise, self.num_classes, seed)

    @cached_property
    def graph(self) -> Graph:
        """A graph with these slots; pairs beyond them are frozen."""
        nodes = next(n for n in range(2, 9) if n * (n - 1) // 2 >= self.slots)
        pairs = list(itertools.combinations(range(nodes), 2))
        edges = [pair for pair, state in zip(pairs, self.clean, strict=False) if state]
        return Graph(nodes, edges, frozen=pairs[self.slots :])


def classifier(kind: str, slots: int, num_classes: int, clean: NDArray[np.bool_], rng: np.random.Generator) -> Labels:
    """A table of labels of the given kind, with class 0 favoured near the clean graph."""
    states = all_states(slots)
    flips = states ^ clean
    if kind == "random":
        favoured = rng.random(len(states)) < rng.uniform(0.55, 0.99)
        return np.where(favoured, 0, rng.integers(1, num_classes, len(states)))
    if kind == "threshold":
        weights = rng.normal(size=(slots, num_classes))
        start = rng.normal(size=num_classes)
        start[0] += rng.uniform(0, 4)
        return np.asarray((flips @ weights + start).argmax(axis=1))
    if kind == "junta":
        seen = rng.choice(slots, size=int(rng.integers(1, 4)), replace=False)
        table = rng.integers(0, num_classes, 2 ** len(seen))
        table[rng.random(len(table)) < 0.6] = 0
        table[0] = 0
        return np.asarray(table[flips[:, seen] @ (1 << np.arange(len(seen)))])
    if kind == "ball":  # right up to a number of flips, wrong beyond: the sharpest change that a share can hide
        limit = rng.integers(0, slots)
        return np.where(flips.sum(axis=1) <= limit, 0, rng.integers(1, num_classes))
    assert kind == "trained"  # it tells noisy prototypes apart by their nearest neighbours
    prototypes = rng.random((num_classes, slots)) < 0.5
    prototypes[0] = clean
    target = rng.integers(0, num_classes, 256)
    learned = KNeighborsClassifier(9).fit(prototypes[target] ^ (rng.random((256, slots)) < 0.15), target)
    return np.asarray(learned.predict(states))


KINDS = ("random", "threshold", "junta", "ball", "trained")


def statistic(
    cube: Cube,
    chosen: list[int],
    attack: Attack,
    weights: tuple[dict[Kind, float], dict[Kind, float]],
    label: int,
    rival: int,
) -> tuple[float, float, Cells]:
    """What one sample adds to the statistic of a set: the mean, the logarithm of the mean of the exponential, the cells."""
    cells = Cells.of(attack.groups, attack.overlap, max(map(sum, weights[0])))
    flips = (all_states(cube.slots) ^ cube.clean)[:, chosen]
    if len(attack.groups) == 1:
        seen = [flips[:, cube.noise.symmetric | np.isin(chosen, attack.slots)].sum(axis=1)]
    else:
        seen = [flips[:, ~cube.clean[chosen]].sum(axis=1), flips[:, cube.clean[chosen]].sum(axis=1)]
    cell = np.ravel_multi_index(tuple(seen), tuple(group.count + 1 for group in attack.groups))
    gain, price = ((np.array([part[kind] for kind in cells.kinds]) @ cells.features)[cell] for part in weights)
    added = np.where(cube.labels == label, gain, np.where(cube.labels == rival, -price, 0.0))
    law = cube.law(cube.clean)
    return float(law @ added), float(logsumexp(added, b=law)), cells
