"""Base classifiers that are tables of random answers, and what every attack does to a vote of theirs."""

import hashlib
import itertools
from dataclasses import dataclass

import numpy as np

import flipproof as fp
from flipproof.graphs import pairs_of_slots


def graph_of(states: list[int], size: int) -> fp.Graph:
    """A graph from the state of each node pair: empty, edge, frozen empty, frozen edge."""
    pairs, state = pairs_of_slots(np.arange(len(states)), size), np.array(states)
    return fp.Graph(size, pairs[state % 2 == 1], frozen=pairs[state >= 2])


@dataclass(frozen=True)
class Table:
    """A classifier with no sense at all: each graph has a random answer, class ``usual`` with a given probability."""

    num_classes: int
    salt: int
    usual: int = 0
    loyalty: float = 0.0

    def __call__(self, graphs: list[fp.Graph]) -> list[int]:
        return [self.answer(graph) for graph in graphs]

    def answer(self, graph: fp.Graph) -> int:
        words = np.frombuffer(
            hashlib.blake2b(f"{self.salt} {graph.edges.tolist()}".encode(), digest_size=16).digest(), dtype="<u8"
        )
        if float(words[0]) < self.loyalty * 2.0**64:
            return self.usual
        return int(words[1] % self.num_classes)


@dataclass(frozen=True)
class Truth:
    """Which attacks of exactly (additions, removals) change the majority, and which the graph has room for."""

    broken: frozenset[tuple[int, int]]
    tried: frozenset[tuple[int, int]]
    radius: int

    def withstood(self, adds: int, removes: int) -> bool:
        """Whether no attack of at most so many additions and removals changes the majority."""
        return not any(a <= adds and d <= removes for a, d in self.broken)


def truth_of(voting: fp.VotingClassifier, model: Table, graph: fp.Graph) -> Truth:
    """Every attack on the graph, tried."""
    states, slots = graph.slot_states, graph.slots
    group_of = voting.groups.of_slots(slots, graph.num_nodes)
    frozen = graph.frozen_edge_slots
    answers: list[dict[tuple[bool, ...], int]] = []
    for group in range(voting.groups.count):
        own = slots[group_of == group]
        known: dict[tuple[bool, ...], int] = {}
        for chosen in itertools.product([False, True], repeat=len(own)):
            edges = np.sort(np.concatenate([own[np.array(chosen, dtype=bool)], frozen]))
            known[chosen] = model.answer(fp.Graph(graph.num_nodes, pairs_of_slots(edges, graph.num_nodes)))
        answers.append(known)
    counts = np.array([voting.groups.count, 0])
    answer: int | None = None
    broken: set[tuple[int, int]] = set()
    tried: set[tuple[int, int]] = set()
    for flips in itertools.product([False, True], repeat=len(slots)):
        flipped = np.array(flips, dtype=bool)
        after = states ^ flipped
        votes = [known[tuple(after[group_of == group].tolist())] for group, known in enumerate(answers)]
        counts = np.bincount(votes, minlength=model.num_classes)
        if answer is None:  # the first attack flips nothing
            answer = int(counts.argmax())
        kind = (int((flipped & ~states).sum()), int((flipped & states).sum()))
        tried.add(kind)
        if int(counts.argmax()) != answer:
            broken.add(kind)
    smallest = min((adds + removes for adds, removes in broken), default=graph.num_slots + 1)
    return Truth(frozenset(broken), frozenset(tried), smallest - 1)
