"""Joint attacks on edges and features: brute force over all noisy states and all attacks, and coverage at the worst point."""

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, Graph
from flipproof.certificates import vote_share
from flipproof.certificates.joint_bound import JointBound, joint_bound, with_features
from flipproof.noise.feature_law import BitNoise, LabelNoise
from support.joint_worlds import World

ROUNDING = 1e-13  # of the sums here; the bounds get shares that are this much worse

EDGES = [
    EdgeNoise(keep=0.8),
    EdgeNoise(keep=0.95),
    EdgeNoise(add=0.1, remove=0.4),
    EdgeNoise(add=0, remove=0.6),
    EdgeNoise(add=0.5, remove=0),
    EdgeNoise(add=0, remove=0),
]
LABELS = [LabelNoise(keep=0.9), LabelNoise(keep=0.6), LabelNoise(keep=1)]
BITS = [BitNoise(keep=0.8), BitNoise(add=0.05, remove=0.6), BitNoise(add=0, remove=0.7), BitNoise(add=0.3, remove=0)]

SMALL = [
    *(World(noise, labels, 3, 2, 2) for noise in EDGES for labels in LABELS),
    *(World(noise, labels, 3, 2, 3) for noise in EDGES for labels in LABELS),
    *(World(noise, bits, 3, 3) for noise in EDGES for bits in BITS),
]
LARGE = [
    *(World(noise, labels, 6, 4, 2) for noise in EDGES for labels in LABELS),  # four nodes
    *(World(noise, labels, 3, 4, 3) for noise in EDGES for labels in LABELS),
    *(World(noise, bits, 3, 6) for noise in EDGES for bits in BITS),  # three nodes with two bits each
]


def classifiers(world, rng):
    """The class of every state: random ones, weighted sums of coordinates, and those that depend on few coordinates."""
    number, width = world.states.shape
    for classes in (2, 3):
        yield rng.choice(classes, size=number, p=rng.dirichlet(np.ones(classes)))
        weights = rng.normal(size=(width, classes))
        yield ((world.states == rng.integers(0, 2, width)) @ weights).argmax(axis=1)
        looked_at = world.states[:, rng.choice(width, 2, replace=False)]
        yield np.minimum((looked_at == looked_at[rng.integers(number)]).sum(axis=1), classes - 1)
    ball = world.changes[rng.integers(number)].sum(axis=1)  # near one graph, and elsewhere
    yield (ball > rng.integers(1, width)).astype(np.int64)


def no_bound_is_above_the_truth(world, seed, graphs):
    """Checks all attacks on some graphs; number of bounds, of attacks that are withstood, and of those certified."""
    rng, bounds, withstood, certified = np.random.default_rng(seed), 0, 0, 0
    for labels in classifiers(world, rng):
        classes = int(labels.max()) + 1
        shares = world.law @ np.eye(classes)[labels]
        for clean in rng.choice(len(shares), min(graphs, len(shares)), replace=False).tolist():
            top = int(shares[clean].argmax())
            share = float(np.clip(shares[clean, top] - ROUNDING, 0, 1))
            rival = float(np.delete(shares[clean], top).max(initial=0.0)) + ROUNDING
            holds = world.bound.withstands(share, rival)
            for attack, attacked in world.kinds_of_attacks(clean):
                after = shares[attacked]
                assert world.bound.worst_case(share, attack) <= after[:, top].min() + ROUNDING, (world, attack)
                truly = bool((after[:, top] > np.delete(after, top, axis=1).max(axis=1, initial=0.0)).all())
                said = holds(attack)
                assert truly or not said, (world, attack)
                bounds, withstood, certified = bounds + 1, withstood + truly, certified + said
    return bounds, withstood, certified


def the_bound_is_attained(world, seed, cases):
    """The Neyman-Pearson classifier of a random attack does exactly as badly as the bound says."""
    rng, attained = np.random.default_rng(seed), 0
    for _ in range(cases):
        clean, attacked = rng.integers(len(world.states), size=2).tolist()
        attack = tuple(world.changes[clean, attacked].tolist())
        x, y = world.law[clean], world.law[attacked]
        order = np.argsort(np.divide(y, x, out=np.full_like(x, np.inf), where=x > 0), kind="stable")
        share = float(rng.choice([rng.random(), 1 - 10 ** rng.uniform(-4, 0)]))
        taken = np.clip(share - (np.cumsum(x[order]) - x[order]), 0, x[order])
        chance = np.divide(taken, x[order], out=np.zeros_like(taken), where=x[order] > 0)
        after = float(chance @ y[order])  # of a classifier whose share is this up to rounding
        shares = np.clip([share - ROUNDING, share + ROUNDING], 0, 1).tolist()
        below, above = (world.bound.worst_case(near, attack) for near in shares)
        assert below - ROUNDING <= after <= above + ROUNDING, (world, attack, share)
        assert above - below < 1e-8
        attained += below > 0
    return attained


def test_no_bound_is_above_the_truth():
    totals = np.sum([no_bound_is_above_the_truth(world, seed, graphs=2) for seed, world in enumerate(SMALL)], axis=0)
    bounds, withstood, certified = totals.tolist()
    assert bounds > 10_000
    assert withstood > certified > 500


def test_the_bound_is_attained():
    assert sum(the_bound_is_attained(world, seed, cases=10) for seed, world in enumerate(SMALL)) > 150


@pytest.mark.guarantee
@pytest.mark.parametrize("world", LARGE, ids=lambda world: f"{world.noise}-{world.feature_noise}-{world.categories}")
def test_no_bound_is_above_the_truth_on_larger_graphs(world):
    bounds, withstood, _ = no_bound_is_above_the_truth(world, 1, graphs=12)
    assert bounds > 300
    assert withstood > 10
    the_bound_is_attained(world, 2, cases=40)


def test_merged_regions_are_caught(monkeypatch):
    """The planted fault: all states of the changed labels are made one region."""
    world = World(EdgeNoise(keep=0.8), LabelNoise(keep=0.6), 3, 2, 3)
    assert the_bound_is_attained(world, 0, cases=20) > 5
    honest = JointBound._made_law

    def merged(self, kind, counts):
        x, y = honest(self, kind, counts)
        return (x, y) if kind == 0 else (x.sum(keepdims=True), y.sum(keepdims=True))

    monkeypatch.setattr(JointBound, "_made_law", merged)
    joint_bound.cache_clear()
    with pytest.raises(AssertionError):
        the_bound_is_attained(world, 0, cases=20)
    joint_bound.cache_clear()


ALPHA = 0.05


def reading_of(votes, noise, feature_noise):
    features = np.eye(4)[np.arange(24) % 4]  # few bits are set, and more labels than any attack here changes
    graph = Graph(24, [(node, (node + 1) % 24) for node in range(24)], features)
    limits = graph.max_adds, graph.max_removes
    alone = vote_share.from_counts(votes, noise, alpha=ALPHA, limits=limits)
    return with_features(alone, alone, graph, feature_noise)


WORST = [
    (EdgeNoise(keep=0.8), LabelNoise(keep=0.8), (1, 1)),
    (EdgeNoise(add=0.1, remove=0.4), LabelNoise(keep=0.7), (0, 1, 1)),
    (EdgeNoise(add=0, remove=0.6), BitNoise(add=0.05, remove=0.6), (0, 1, 0, 1)),
    (EdgeNoise(keep=0.7), BitNoise(keep=0.8), (0, 1)),
]


@pytest.mark.parametrize(("noise", "feature_noise", "attack"), WORST, ids=str)
def test_failure_probability_is_at_most_alpha_exactly(noise, feature_noise, attack):
    """Two classes, the share exactly at the threshold of an attack: the Neyman-Pearson classifier is tied after it.

    A certificate is false if it names the other class, or says that the attack is withstood.
    """
    samples = 200
    share = 1 - joint_bound(noise, feature_noise, 4).slack(attack)
    counts = np.arange(samples + 1)
    chances = stats.binom.pmf(counts, samples, share)
    failure = 0.0
    for count, chance in zip(counts.tolist(), chances.tolist(), strict=True):
        votes = np.array([count, samples - count])
        reading = reading_of(votes, noise, feature_noise)
        inside = all(number < size for number, size in zip(attack, reading.grid.shape, strict=True))
        false = reading.label == 1 or (inside and bool(reading.grid[attack]))
        failure += chance * false
    assert 0 < failure <= ALPHA


@pytest.mark.parametrize(("noise", "feature_noise", "attack"), WORST, ids=str)
def test_coverage_with_rivals(noise, feature_noise, attack):
    """Three classes at the point where the top class and the rival are tied after the attack; 2,000 runs.

    False alarm: 1e-6 for each case, at failure probability alpha; seeds are fixed.
    """
    bound, runs = joint_bound(noise, feature_noise, 4), 2000
    rival = 0.4 * bound.slack(attack)
    low, high = 0.5, 1 - rival
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if bound.withstands(middle, rival)(attack) else (middle, high)
    assert low < 1 - 2 * rival, "a third class has votes"
    rng = np.random.default_rng(7)
    drawn, numbers = np.unique(rng.multinomial(400, [low, rival, 1 - low - rival], runs), axis=0, return_counts=True)
    false = 0
    for votes, number in zip(drawn, numbers.tolist(), strict=True):
        reading = reading_of(votes, noise, feature_noise)
        inside = all(count < size for count, size in zip(attack, reading.grid.shape, strict=True))
        false += number * (reading.label not in (None, 0) or (inside and bool(reading.grid[attack])))
    assert stats.binom.sf(false - 1, runs, ALPHA) > 1e-6
