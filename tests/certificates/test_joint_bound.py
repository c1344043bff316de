"""The joint bound against exact arithmetic: never above it, and within 1e-9 below it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flipproof import EdgeNoise, Graph, InputError
from flipproof.certificates import joint_bound as joint
from flipproof.certificates import vote_share
from flipproof.certificates.joint_bound import JointBound, joint_bound, with_features
from flipproof.certificates.vote_share import bounded_radius
from flipproof.noise.feature_law import BitNoise, FeatureNoise, LabelNoise
from support import exact

EDGES = [
    EdgeNoise(keep=0.9),
    EdgeNoise(keep=0.6),
    EdgeNoise(keep=1 - 1e-6),
    EdgeNoise(add=0.1, remove=0.4),
    EdgeNoise(add=1e-4, remove=0.9),
    EdgeNoise(add=0, remove=0.6),
    EdgeNoise(add=0.3, remove=0),
    EdgeNoise(add=0, remove=0),
]
FEATURES: list[tuple[FeatureNoise, int]] = [
    (LabelNoise(keep=0.9), 2),
    (LabelNoise(keep=0.9), 7),
    (LabelNoise(keep=0.4), 3),
    (LabelNoise(keep=1), 3),
    (LabelNoise(keep=1 - 1e-6), 4),
    (BitNoise(keep=0.8), 5),
    (BitNoise(add=0.01, remove=0.6), 5),
    (BitNoise(add=0, remove=0.6), 5),
    (BitNoise(add=0.2, remove=0), 5),
]
SHARES = [0.0, 1e-9, 0.3, 0.5, 0.5 + 1e-9, 0.77, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9, 1 - 2**-53, 1.0]
TOLERANCE = Fraction(1, 10**9)


def random_case(rng):
    """Noises, some with a probability of 0, and an attack of up to three changes of each kind."""

    def flips():
        if rng.random() < 0.4:
            return {"keep": rng.uniform(0.505, 0.999)}
        add = rng.uniform(0, 0.9) * rng.integers(0, 4).clip(max=1)
        return {"add": add, "remove": rng.uniform(0, 0.99 - add) * rng.integers(0, 4).clip(max=1)}

    noise, categories = EdgeNoise(**flips()), int(rng.integers(2, 6))
    feature_noise: FeatureNoise = BitNoise(**flips())
    if rng.random() < 0.5:
        feature_noise = LabelNoise(keep=rng.uniform(1 / categories + 0.01, 1) if rng.random() < 0.9 else 1.0)
    attack = rng.integers(0, 4, size=len(joint_bound(noise, feature_noise, categories).axes))
    return noise, feature_noise, categories, tuple(attack.tolist())


def test_the_bound_is_the_exact_one_in_a_thousand_random_cases():
    rng = np.random.default_rng(1)
    positive = 0
    for _ in range(1000):
        noise, feature_noise, categories, attack = random_case(rng)
        share = float(rng.choice([rng.random(), 1 - 10 ** rng.uniform(-9, 0)]))
        found = Fraction(joint_bound(noise, feature_noise, categories).worst_case(share, attack))
        true = exact.lower_from(exact.joint_regions(noise, feature_noise, categories, attack), Fraction(share))
        assert found <= true or (not any(attack) and found == share), (noise, feature_noise, categories, attack, share)
        assert true - found <= TOLERANCE, (noise, feature_noise, categories, attack, share)
        positive += true > 0
    assert positive > 400, "the cases say something"


@pytest.mark.parametrize("noise", EDGES, ids=str)
@pytest.mark.parametrize(("feature_noise", "categories"), FEATURES, ids=str)
def test_extreme_shares_and_noises(noise, feature_noise, categories):
    bound = joint_bound(noise, feature_noise, categories)
    for attack in itertools.product(*([0, 2] for _ in bound.axes)):
        if not any(attack):
            continue
        masses = exact.joint_regions(noise, feature_noise, categories, attack)
        for share in SHARES:
            found, true = Fraction(bound.worst_case(share, attack)), exact.lower_from(masses, Fraction(share))
            assert 0 <= true - found <= TOLERANCE, (attack, share)


@pytest.mark.parametrize("noise", EDGES, ids=str)
@pytest.mark.parametrize(("feature_noise", "categories"), FEATURES, ids=str)
def test_thresholds_are_sound_and_tight(noise, feature_noise, categories):
    bound = joint_bound(noise, feature_noise, categories)
    for attack in itertools.product(range(2), repeat=len(bound.axes)):
        slack = Fraction(bound.slack(attack))
        masses = exact.joint_regions(noise, feature_noise, categories, attack)
        if slack:  # every share whose miss is below it is certified: the one at it must not be below 1/2
            assert exact.lower_from(masses, 1 - slack) >= Fraction(1, 2)
        looser = min(Fraction(1), slack * (1 + TOLERANCE) + TOLERANCE)
        assert exact.lower_from(masses, 1 - looser) <= Fraction(1, 2)


def test_rivals_are_compared_as_exact_arithmetic_does():
    """0 certified that are not; those missed lie within 1e-9 of a tie."""
    rng = np.random.default_rng(2)
    outcomes = {"certified": 0, "by the rival's bound alone": 0, "not": 0}
    for _ in range(400):
        noise, feature_noise, categories, attack = random_case(rng)
        top = 1 - 10 ** rng.uniform(-3, -0.2)
        rival = (1 - top) * rng.uniform(0, 1.1) ** 2
        bound, masses = (
            joint_bound(noise, feature_noise, categories),
            exact.joint_regions(noise, feature_noise, categories, attack),
        )
        share, other = Fraction(top), min(Fraction(rival), 1 - Fraction(top))
        lead = exact.lower_from(masses, share) - exact.upper_from(masses, other)
        if bound.withstands(top, rival)(attack):
            assert lead > 0
            alone = bound.withstands(top)(attack)
            outcomes["certified" if alone else "by the rival's bound alone"] += 1
        else:
            assert lead <= TOLERANCE
            outcomes["not"] += 1
    assert min(outcomes.values()) > 20, outcomes


@pytest.mark.parametrize("noise", [noise for noise, _ in FEATURES if isinstance(noise, BitNoise)], ids=str)
def test_bits_alone_are_slots(noise):
    bound = joint_bound(EdgeNoise(keep=0.7), noise)
    room = (9, 40) if noise.law.symmetric else (9, 8, 32)
    for share in (*SHARES, *np.random.default_rng(3).uniform(0.5, 1, 40).tolist()):
        for rival in (None, (1 - share) / 3):
            known = bounded_radius(share, noise.law, rival, max_adds=8, max_removes=32)
            assert bound.feature_radius(share, room, rival) == known


def test_without_label_noise_nothing_is_said_of_labels():
    bound = joint_bound(EdgeNoise(keep=0.8), LabelNoise(keep=1), 5)
    assert bound.grid(0.999, (10, 10)).shape == (6, 1)
    assert bound.feature_radius(0.999, (10, 10)) == 0
    without_edges = joint_bound(EdgeNoise(add=0, remove=0), LabelNoise(keep=0.8), 5)
    assert without_edges.grid(0.999, (10, 10)).shape == (1, 3)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_grid_holds_what_can_be_reached_by_going_up(seed):
    rng = np.random.default_rng(seed)
    noise, feature_noise, categories, room = random_case(rng)
    share = 1 - 10 ** rng.uniform(-6, -0.3)
    rival = float((1 - share) * rng.uniform(0, 1)) if rng.random() < 0.5 else None
    bound = joint_bound(noise, feature_noise, categories)
    grid, holds = bound.grid(share, room, rival), bound.withstands(share, rival)
    assert all(size <= 1 + most for size, most in zip(grid.shape, room, strict=True))
    for attack in itertools.product(*(range(most + 1) for most in room)):
        smaller = itertools.product(*(range(count + 1) for count in attack))
        inside = all(count < size for count, size in zip(attack, grid.shape, strict=True))
        assert (inside and bool(grid[attack])) == all(map(holds, smaller)), attack


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_more_votes_and_smaller_rivals_never_certify_less(seed):
    rng = np.random.default_rng(seed)
    noise, feature_noise, categories, _ = random_case(rng)
    bound = joint_bound(noise, feature_noise, categories)
    low, high = np.sort(1 - 10 ** rng.uniform(-4, -0.4, 2)).tolist()
    room = (3,) * len(bound.axes)
    small, large = bound.grid(low, room), bound.grid(high, room)
    assert all(one <= other for one, other in zip(small.shape, large.shape, strict=True))
    assert large[tuple(map(slice, small.shape))][small].all()
    rivals = bound.grid(low, room, (1 - low) / 2)
    assert rivals[tuple(map(slice, small.shape))][small].all()


def test_grids_and_memory_are_bounded(monkeypatch):
    """Noise under which nothing can be told apart withstands everything; the axes end all the same."""
    noises = [
        (EdgeNoise(keep=0.501), LabelNoise(keep=0.5001)),
        (EdgeNoise(add=0.49, remove=0.509), LabelNoise(keep=0.5001)),
        (EdgeNoise(add=0.49, remove=0.509), BitNoise(add=0.509, remove=0.49)),
    ]
    assert [joint_bound(*pair).largest for pair in noises] == [64, 32, 16]
    monkeypatch.setattr(joint, "GRID_LIMIT", 16)
    for size, pair in zip((16, 8, 4), noises, strict=True):
        bound = JointBound(*pair, 2)
        assert bound.grid(1 - 1e-9, (70,) * len(bound.axes)).shape == (size,) * len(bound.axes)


def reading_of(counts, graph, noise, features):
    """The certificate of method votes, and what the joint bound makes of it."""
    limits = graph.max_adds, graph.max_removes
    votes = vote_share.from_counts(np.array(counts), noise, alpha=0.01, limits=limits)
    return votes, with_features(votes, votes, graph, features)


def test_a_reading_shares_its_bounds_with_method_votes():
    graph = Graph(30, [(node, (node + 1) % 30) for node in range(30)], np.eye(7)[np.arange(30) % 7])
    for counts in ([9900, 100], [5000, 5000], [7000, 200, 100], [980, 10, 10], [10, 0, 0]):
        votes, reading = reading_of(counts, graph, EdgeNoise(add=0.05, remove=0.4), LabelNoise(keep=0.8))
        for name in ("label", "p_lower", "p_upper", "radius"):
            assert getattr(reading, name) == getattr(votes, name)
        assert reading.axes == ("additions", "removals", "changed labels")
        if reading.label is None:
            assert (reading.radius, reading.feature_radius, reading.grid.size) == (-1, -1, 0)
        else:
            assert np.array_equal(reading.grid[..., 0], votes.grid)
            assert reading.grid.shape[2] - 1 == reading.feature_radius


def test_graphs_smaller_than_the_radius_are_withstood_whole():
    _, reading = reading_of([100_000, 0], Graph(3, [(0, 1)], np.eye(3)), EdgeNoise(keep=0.6), LabelNoise(keep=0.5))
    assert (reading.radius, reading.feature_radius) == (3, 3)
    assert reading.grid.shape == (4, 4)
    assert reading.grid.all()


BOUND = joint_bound(EdgeNoise(keep=0.9), BitNoise(keep=0.9))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: joint_bound(0.9, LabelNoise()), "noise must be an EdgeNoise; got 0.9"),
        (lambda: joint_bound(BOUND.noise, BOUND.noise), "feature_noise must be a LabelNoise or BitNoise"),
        (lambda: joint_bound(BOUND.noise, LabelNoise(keep=0.1), 5), "keep must exceed 1 / 5"),
        (lambda: BOUND.grid(1.5, (1, 1)), r"p_lower must lie in \[0, 1\]"),
        (lambda: BOUND.grid(0.9, (1,)), "a number for each of flips, changed"),
        (lambda: BOUND.worst_case(0.9, (1, -1)), "attack must hold a number"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
