"""How the sparse sampler adds edges: their number by a table of the binomial law, their places without replacement."""

import itertools
from fractions import Fraction

import mpmath
import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flipproof import EdgeNoise, Graph
from flipproof.graphs import pairs_of_slots
from flipproof.noise import SampleStream, cell_flips
from flipproof.noise.stream import AdditionLaw, _binomial_thresholds
from support.streams import SMALL, forced_sparse, stream


@pytest.mark.parametrize(
    ("trials", "threshold"),
    [(45, 2**31), (45, 429496730), (7, 1), (1, 2**32 - 1), (300, 2**32 - 2**20), (200, 42949673)],
)
def test_counts_table_against_rational_arithmetic(trials, threshold):
    q = Fraction(threshold, 2**32)
    cumulative, mass = [], (1 - q) ** trials
    for count in range(trials + 1):
        cumulative.append(mass if count == 0 else cumulative[-1] + mass)
        mass = mass * (trials - count) / (count + 1) * q / (1 - q) if count < trials else Fraction(0)
    assert cumulative[-1] == 1
    floors = [int(total * 2**64) for total in cumulative[:-1]]
    first, table = _binomial_thresholds(trials, threshold)
    kept = [value for value in floors if value > 0]
    kept = list(itertools.takewhile(lambda value: value < 2**64 - 1, kept))
    assert first == sum(value == 0 for value in floors)
    assert table.tolist() == kept
    # total-variation distance of the law that the table gives
    law = AdditionLaw.of(trials, threshold)
    steps = [Fraction(0)] * first + [Fraction(int(value), 2**64) for value in table]
    steps += [Fraction(1)] * (trials + 1 - len(steps))
    of_table = [steps[0]] + [b - a for a, b in itertools.pairwise(steps)]
    exact = [cumulative[0]] + [b - a for a, b in itertools.pairwise(cumulative)]
    distance = sum(abs(a - b) for a, b in zip(of_table, exact, strict=True)) / 2
    assert 0 <= distance <= law.discrepancy


@pytest.mark.parametrize(("trials", "threshold"), [(49_945_000, 4295), (199_940_000, 1074), (4850, 8589935)])
def test_counts_table_of_large_graphs_against_mpmath(trials, threshold):
    first, table = _binomial_thresholds(trials, threshold)
    with mpmath.workdps(80):
        q = mpmath.mpf(threshold) / 2**32
        log_mass = trials * mpmath.log1p(-q)
        total, mass = mpmath.mpf(0), mpmath.exp(log_mass)
        for count in range(first + len(table)):
            total += mass
            mass = mass * (trials - count) / (count + 1) * q / (1 - q)
            wanted = int(mpmath.floor(total * 2**64))
            assert wanted == (0 if count < first else int(table[count - first]))
        assert 1 - (total + mass) <= mpmath.mpf(2) ** -64, "what is cut off"


def test_counts_are_read_off_the_table():
    law = AdditionLaw.of(1000, 42949673)
    words = np.array([0, law.thresholds[3] - 1, law.thresholds[3], 2**64 - 1], dtype=np.uint64)
    assert law.counts(words).tolist() == [law.first, law.first + 3, law.first + 4, law.first + len(law.thresholds)]


def test_complete_graph_has_nowhere_to_add():
    complete = Graph.from_networkx(networkx.complete_graph(95))
    for remove in (0.0, 0.3):
        source = stream(complete, EdgeNoise(add=0.01, remove=remove))
        flips = source.flip_lists(0, 20)
        assert (len(flips.slot) > 0) == (remove > 0)


def first_distinct(words, count, empty):
    """What :func:`added_cells` does, slowly: ranks among the empty cells, or those found if there are too few draws."""
    ranks = dict[int, None]()
    for word in words.tolist():
        if len(ranks) < count and word < 2**64 // empty * empty:
            ranks[word % empty] = None
    return sorted(ranks)


@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(0, 150), st.integers(0, 400))
def test_cells_are_the_first_distinct_ones_drawn(seed, empty, most, draws):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**64, (4, draws), dtype=np.uint64)
    words[rng.random(words.shape) < 0.2] = 2**64 - 1  # refused, as it would favour small ranks
    counts = rng.integers(0, min(most, empty) + 1, 4)
    occupied = np.sort(rng.choice(empty + 20, 20, replace=False))
    free = np.setdiff1d(np.arange(empty + 20), occupied)
    highest = np.uint64(2**64 // empty * empty - 1)
    starts, cells, short = cell_flips.added_cells(words, 0, draws, counts, empty, highest, occupied - np.arange(20))
    for row, count in enumerate(counts.tolist()):
        ranks = first_distinct(words[row], count, empty)
        assert short[row] == (len(ranks) < count)
        if not short[row]:
            assert cells[starts[row] : starts[row + 1]].tolist() == free[ranks].tolist()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(("add", "remove"), [(0.0, 0.3), (0.004, 0.0), (0.002, 0.3), (0.03, 0.6)])
def test_neighbours_are_those_of_the_flipped_graph(frozen, add, remove):
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 200, (500, 2))
    graph = Graph(200, pairs[pairs[:, 0] != pairs[:, 1]])
    if frozen:
        graph = graph.replaced(frozen=np.concatenate([graph.edges[::7], [(0, 199), (198, 199)]]))
    source = stream(graph, EdgeNoise(add=add, remove=remove))
    assert source.sparse
    batch, _ = source.batch(5, 9)
    flips = np.stack(source.flip_lists(5, 9), axis=1)
    starts, places = batch.neighbours
    assert places.dtype == np.int32
    for copy in range(4):
        wanted = graph.flipped(pairs_of_slots(flips[flips[:, 0] == copy, 1], 200)).adjacency()
        for node in range(200):
            row = copy * 200 + node
            assert places[starts[row] : starts[row + 1]].tolist() == np.flatnonzero(wanted[node]).tolist()


def test_replacements_do_not_depend_on_the_batch(monkeypatch):
    calls = []
    original = SampleStream._replacement
    monkeypatch.setattr(
        SampleStream, "_replacement", lambda self, index, count: calls.append(index) or original(self, index, count)
    )
    source = forced_sparse(SMALL, EdgeNoise(add=0.2, remove=0.1), draws=4)
    whole = source.flips(0, 300)
    assert 10 < len(calls) < 290, "some samples need a replacement, some do not"
    assert calls == sorted(set(calls))
    parts = [source.flips(start, start + 7) for start in range(0, 294, 7)]
    assert np.array_equal(np.concatenate(parts), whole[:294])
    assert np.array_equal(source.flips(250, 251)[0], whole[250])
