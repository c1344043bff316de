"""Certificates by votes: brute force over all attacks, and coverage."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from flipproof import EdgeNoise, certified_grid, certify_counts, worst_case
from flipproof.certificates import paper
from flipproof.certificates import vote_share as by_votes
from flipproof.certificates.vote_share import bounded_radius
from support import exact
from support.cube import all_states, attacks_between, laws

NOISES = {
    "keep .6": EdgeNoise(keep=0.6),
    "keep .8": EdgeNoise(keep=0.8),
    "keep .95": EdgeNoise(keep=0.95),
    "add .1, remove .4": EdgeNoise(add=0.1, remove=0.4),
    "add .5, remove .2": EdgeNoise(add=0.5, remove=0.2),
    "add .01, remove .6": EdgeNoise(add=0.01, remove=0.6),
    "add 0, remove .7": EdgeNoise(add=0, remove=0.7),
    "add 0, remove .3": EdgeNoise(add=0, remove=0.3),
    "add .8, remove 0": EdgeNoise(add=0.8, remove=0),
    "none": EdgeNoise(add=0, remove=0),
}
# Products here are known up to rounding, which a bound may magnify: bounds get the share less this, and are
# compared up to this. (The bounds themselves are compared with exact arithmetic elsewhere.)
ROUNDING = 1e-13


def hard(labels, num_classes):
    return np.eye(num_classes)[labels]


def edges(slots):
    return all_states(slots).sum(axis=1)


def junta(slots, rng):
    """Looks at a few slots only: the votes bound's nightmare."""
    chosen = rng.permutation(slots)[: min(slots, int(rng.integers(1, 4)))]
    return hard(all_states(slots)[:, chosen].sum(axis=1), len(chosen) + 1)


CLASSIFIERS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "fair": lambda slots, rng: hard(rng.integers(0, 2, 2**slots), 2),
    "biased": lambda slots, rng: hard((rng.random(2**slots) < 0.07).astype(int), 2),
    "three_classes": lambda slots, rng: hard(rng.choice(3, 2**slots, p=[0.8, 0.15, 0.05]), 3),
    "threshold": lambda slots, rng: hard((edges(slots) > rng.integers(0, slots)).astype(int), 2),
    "bands": lambda slots, _: hard(edges(slots) * 4 // (slots + 1), 4),
    "junta": junta,
    "parity": lambda slots, _: hard(edges(slots) % 2, 2),
    "soft": lambda slots, rng: rng.dirichlet([0.4, 0.2, 0.1], 2**slots),  # a randomised base classifier
    "constant": lambda slots, _: hard(np.zeros(2**slots, dtype=int), 2),
}


def every_attack(slots):
    """Each kind of attack, with the pairs of graphs it leads from and to."""
    adds, removes = attacks_between(slots)
    for a in range(slots + 1):
        for d in range(slots + 1 - a):
            if a + d:
                yield a, d, (adds == a) & (removes == d)


def check_bounds(table, slots, noise):
    """Lower bounds on all classes' shares, and upper bounds, after all attacks; how many were compared."""
    shares = np.clip(laws(slots, noise) @ table, 0, 1)
    compared = 0
    for a, d, pairs in every_attack(slots):
        lower = np.asarray(worst_case(np.maximum(0, shares - ROUNDING), noise, a, d))
        upper = 1 - np.asarray(worst_case(np.maximum(0, 1 - shares - ROUNDING), noise, a, d))
        clean, attacked = np.nonzero(pairs)
        assert (lower[clean] <= shares[attacked] + ROUNDING).all(), (a, d)
        assert (upper[clean] >= shares[attacked] - ROUNDING).all(), (a, d)
        compared += 2 * len(clean) * shares.shape[1]
    return compared


def check_radii(table, slots, noise):
    """No attack within a certified radius or grid cell changes the answer; returns the radii."""
    shares = np.clip(laws(slots, noise) @ table, 0, 1)
    adds, removes = attacks_between(slots)
    order = np.argsort(-shares, axis=1, kind="stable")
    rows = np.arange(len(shares))
    top, rival = order[:, 0], order[:, 1]
    largest = np.zeros(len(shares), dtype=np.int64)
    for p_upper in (None, np.minimum(1, shares[rows, rival] + ROUNDING)):
        for graph, (share, label) in enumerate(zip(shares[rows, top] - ROUNDING, top, strict=True)):
            edges = int(all_states(slots)[graph].sum())
            beaten = None if p_upper is None else p_upper[graph]
            limits = {"max_adds": slots - edges, "max_removes": edges, "max_radius": slots}
            withstood = int(bounded_radius(share, noise, beaten, **limits))
            largest[graph] = max(largest[graph], withstood)
            rest = np.delete(shares, label, axis=1).max(axis=1)
            stays = shares[:, label] > rest - ROUNDING
            within = adds[graph] + removes[graph] <= withstood
            assert stays[within].all(), (graph, withstood)
            grid = certified_grid(share, noise, slots - edges, edges, beaten)
            assert stays[grid[adds[graph], removes[graph]]].all(), graph
    return largest


@pytest.mark.parametrize("slots", [1, 3, 6])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_no_bound_is_above_the_truth_on_up_to_four_nodes(noise, slots):
    rng = np.random.default_rng(slots)
    compared = sum(check_bounds(build(slots, rng), slots, noise) for build in CLASSIFIERS.values())
    assert compared > 9 * 2 * 2 * (4**slots - 2**slots)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_no_attack_within_the_radius_succeeds_on_up_to_four_nodes(noise):
    rng = np.random.default_rng(4)
    radii = [
        check_radii(CLASSIFIERS[name](slots, rng), slots, noise)
        for name in ("biased", "three_classes", "junta", "threshold", "soft", "constant")
        for slots in ((1, 3, 6) if name == "junta" else (1, 3))
    ]
    assert np.concatenate(radii).max() >= (0 if noise == NOISES["none"] else 1), "something was certified"


@pytest.mark.guarantee
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_all_graphs_on_five_nodes_all_classifiers(noise, name):
    rng = np.random.default_rng(55)
    for slots in (6, 10):
        for _ in range(3 if name in ("fair", "biased", "three_classes", "junta", "soft") else 1):
            check_bounds(CLASSIFIERS[name](slots, rng), slots, noise)
    check_radii(CLASSIFIERS[name](6, rng), 6, noise)


@pytest.mark.guarantee
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_no_attack_within_the_radius_succeeds_on_five_nodes(noise):
    rng = np.random.default_rng(56)
    for name in ("biased", "three_classes", "junta", "soft"):
        check_radii(CLASSIFIERS[name](10, rng), 10, noise)


def neyman_pearson(clean, attacked, share, slots, noise, *, first="x"):
    """Acceptance probabilities ``[2**N]``: graphs by likelihood ratio, until ``share`` of the clean law is used.

    Sorted with ``first="x"`` this is the classifier that loses most by the attack, with ``"y"`` the one that
    gains most. Built from the laws of the whole graph alone, without regions.
    """
    x, y = laws(slots, noise)[clean], laws(slots, noise)[attacked]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(x + y > 0, y / (x + y), 0.5)  # between 0 (only X) and 1 (only Y)
    accepted = np.zeros(len(x))
    left = share
    if first == "y":
        accepted[(x == 0) & (y > 0)] = 1
    for z in np.argsort(ratio if first == "x" else -ratio, kind="stable"):
        if x[z] > 0 and left > 0:
            accepted[z] = min(1.0, left / x[z])
            left -= x[z] * accepted[z]
    return accepted


def tightness(slots, noise, kinds, shares):
    """The adversary's share after the attack is the bound, from both sides; how many were compared."""
    rng, compared = np.random.default_rng(slots), 0
    adds, removes = attacks_between(slots)
    for a, d in kinds:
        pairs = np.argwhere((adds == a) & (removes == d))
        for clean, attacked in pairs[rng.permutation(len(pairs))[:2]]:
            for share in shares:
                table = neyman_pearson(clean, attacked, share, slots, noise)
                assert laws(slots, noise)[clean] @ table == pytest.approx(share, abs=1e-12)
                after = laws(slots, noise)[attacked] @ table
                assert worst_case(share, noise, a, d) == pytest.approx(after, abs=1e-9)
                gaining = neyman_pearson(clean, attacked, share, slots, noise, first="y")
                upper = 1 - worst_case(1 - share, noise, a, d)
                assert upper == pytest.approx(laws(slots, noise)[attacked] @ gaining, abs=1e-9)
                compared += 2
    return compared


FEW = [(1, 0), (0, 1), (1, 1), (2, 1), (0, 3), (3, 3), (6, 0)]
ALL = [(a, d) for a in range(11) for d in range(11 - a) if a + d]


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
@pytest.mark.parametrize(
    ("slots", "kinds", "shares", "least"),
    [
        (6, FEW, [0.05, 0.5, 0.7, 0.93, 0.999], 50),
        pytest.param(10, ALL, [0.01, 0.3, 0.5, 0.7, 0.9, 0.99, 0.9999], 501, marks=pytest.mark.guarantee),
    ],
    ids=["four nodes", "five nodes"],
)
def test_the_adversary_attains_the_bound(noise, slots, kinds, shares, least):
    assert tightness(slots, noise, kinds, shares) >= least


def test_a_false_bound_would_be_seen(monkeypatch):
    """A bound that is too large by a hundredth, or made for a stronger noise, is caught by the checks above."""
    rng, noise = np.random.default_rng(1), NOISES["keep .8"]
    table = junta(6, rng)
    check_bounds(table, 6, noise)
    honest = worst_case
    faults: list[Callable[..., object]] = [
        lambda p, noise, a, d: np.minimum(1, np.asarray(honest(p, noise, a, d)) + 0.01),
        lambda p, noise, a, d: honest(p, EdgeNoise(keep=0.79), a, d),
        lambda p, noise, a, d: honest(p, noise, max(0, a - 1), d),
    ]
    for fault in faults:
        monkeypatch.setitem(globals(), "worst_case", fault)
        with pytest.raises(AssertionError):
            check_bounds(table, 6, noise)
    exact_radius = bounded_radius
    monkeypatch.setitem(globals(), "bounded_radius", lambda *shares, **limits: exact_radius(*shares, **limits) + 1)
    with pytest.raises(AssertionError):
        check_radii(table, 6, noise)


FALSE_ALARM = 1e-6
RUNS = 20_000
ALPHA = 0.05
UNBOUNDED = 1000

SYMMETRIC, UNEQUAL = EdgeNoise(keep=0.8), EdgeNoise(add=0.1, remove=0.4)


def boundary(noise, flips, others):
    """The largest share of A for which radius ``flips`` is false while B has all but A's share and ``others``."""

    def withstood(share):
        top, rest = Fraction(share), 1 - Fraction(share) - Fraction(others)
        return all(exact.certified(noise, *split, top, rest) for split in exact.splits(flips))

    low, high = 0.5 * (1 - others), 1 - others
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if withstood(middle) else (middle, high)
    return low


def at_threshold(noise, flips, num_classes, *others: float):
    """Class probabilities at the boundary of a radius: A, B, the given others, and classes without any."""
    share = boundary(noise, flips, sum(others))
    rival = 1 - share - sum(others)
    rival = float(np.nextafter(rival, 1)) if others else rival  # rounding must not move it to the safe side
    return np.array([share, rival, *others, *[0.0] * (num_classes - 2 - len(others))])


def equal_rivals(noise, flips, num_classes):
    """Class probabilities at the boundary of a radius where all rivals are alike: each may be the one that wins."""

    def withstood(rival):
        top = 1 - (num_classes - 1) * Fraction(rival)
        return all(exact.certified(noise, *split, top, Fraction(rival)) for split in exact.splits(flips))

    low, high = 0.0, 1 / num_classes
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if withstood(middle) else (low, middle)
    return np.array([float(1 - (num_classes - 1) * Fraction(high)), *[high] * (num_classes - 1)])


def true_radius(probabilities, noise, most=8):
    """Of the smoothed prediction, for the worst base classifier with these probabilities; -1 for a tie."""
    second, top = map(Fraction, sorted(probabilities.tolist())[-2:])
    return -1 if top <= second else exact.radius(noise, top, second, max_radius=most)


CASES = {
    "2 classes, radius 1": (SYMMETRIC, at_threshold(SYMMETRIC, 1, 2), 1000),
    "2 classes, radius 2": (SYMMETRIC, at_threshold(SYMMETRIC, 2, 2), 1000),
    "2 classes, radius 1, few samples": (EdgeNoise(keep=0.55), at_threshold(EdgeNoise(keep=0.55), 1, 2), 30),
    "2 classes, radius 2, unequal noise": (UNEQUAL, at_threshold(UNEQUAL, 2, 2), 500),
    "2 classes, tied": (SYMMETRIC, np.array([0.5, 0.5]), 1000),
    "3 classes, radius 1, one without votes": (SYMMETRIC, at_threshold(SYMMETRIC, 1, 3), 1000),
    "3 classes, radius 1": (SYMMETRIC, at_threshold(SYMMETRIC, 1, 3, 0.03), 300),
    "3 classes, two tied": (SYMMETRIC, np.array([0.48, 0.48, 0.04]), 300),
    "3 classes, all tied": (SYMMETRIC, np.full(3, 1 / 3), 100),
    "8 classes, radius 2, six without votes": (SYMMETRIC, at_threshold(SYMMETRIC, 2, 8), 1000),
    "8 classes, radius 1, top below half": (
        EdgeNoise(keep=0.6),
        at_threshold(EdgeNoise(keep=0.6), 1, 8, 0.15, 0.15),
        40,
    ),
    # one rival at the threshold, and many more classes of which any may look like it
    "40 classes, radius 1, top below half": (
        EdgeNoise(keep=0.6),
        at_threshold(EdgeNoise(keep=0.6), 1, 40, *[2**-7] * 38),
        200,
    ),
    "40 classes, radius 1, equal rivals": (EdgeNoise(keep=0.6), equal_rivals(EdgeNoise(keep=0.6), 1, 40), 200),
    "8 classes, two tied": (SYMMETRIC, np.array([0.49, 0.49, 0.02, *[0.0] * 5]), 200),
}


def false_certificates(noise, probabilities, samples, *, method, alpha, runs=RUNS):
    """How many of so many simulated certifications are false; one stands for all with the same two largest counts."""
    rng = np.random.default_rng(20_20)
    best, truth = int(np.argmax(probabilities)), true_radius(probabilities, noise)
    drawn = rng.multinomial(samples, probabilities, runs)
    leading = np.stack([drawn[:, best], np.delete(drawn, best, axis=1).max(axis=1)], axis=1)
    _, first, times = np.unique(leading, axis=0, return_index=True, return_counts=True)
    false = 0
    for counts, number in zip(drawn[first], times.tolist(), strict=True):
        certificate = certify_counts(counts, noise, alpha=alpha, method=method)
        if certificate.label is not None and (certificate.label != best or certificate.radius > truth):
            false += number
    return false


def fits(false, alpha, runs=RUNS):
    """Whether so many false certificates are plausible for a failure probability of at most alpha."""
    return float(stats.binom.sf(false - 1, runs, alpha)) > FALSE_ALARM


@pytest.mark.parametrize("method", ["votes", "paper"])
@pytest.mark.parametrize(("noise", "probabilities", "samples"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize(
    ("alpha", "runs"),
    [
        (ALPHA, RUNS),
        *(
            pytest.param(*many, marks=pytest.mark.guarantee)
            for many in ((0.3, 50_000), (0.01, 200_000), (0.001, 500_000))
        ),
    ],
)
def test_false_certificates_stay_within_alpha(noise, probabilities, samples, method, alpha, runs):
    false = false_certificates(noise, probabilities, samples, method=method, alpha=alpha, runs=runs)
    assert fits(false, alpha, runs), f"{false} of {runs}"


def test_the_points_are_the_worst_ones():
    """At a threshold the radius is false, and a hair above it it is true; a tie has no radius."""
    for flips in (1, 2):
        for others in (0.0, 0.1):
            share = boundary(SYMMETRIC, flips, others)
            for step, withstood in ((0.0, False), (1e-12, True)):
                top = Fraction(share + step)
                rest = 1 - top - Fraction(others)
                assert exact.certified(SYMMETRIC, flips, 0, top, rest) == withstood
    for name, (noise, probabilities, _) in CASES.items():
        words = name.split()
        wanted = -1 if "tied" in words else int(words[words.index("radius") + 1].rstrip(",")) - 1
        assert true_radius(probabilities, noise) == wanted, name
        assert len(probabilities) == int(words[0])
        assert probabilities.sum() == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("method", ["votes", "paper"])
@pytest.mark.parametrize("name", ["2 classes, radius 1", "2 classes, radius 2", "3 classes, radius 1"])
def test_five_times_alpha_is_caught(name, method):
    """The planted fault: bounds at ``5 alpha`` on a certificate that says alpha."""
    noise, probabilities, samples = CASES[name]
    false = false_certificates(noise, probabilities, samples, method=method, alpha=5 * ALPHA)
    assert not fits(false, ALPHA)


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_a_label_without_a_test_is_caught(method, monkeypatch):
    """The planted fault: a tied class is named whenever its share's bound allows it."""
    home = {"votes": "vote_share"}.get(method, method)
    monkeypatch.setattr(f"flipproof.certificates.{home}.label_pvalue", lambda top, second: np.zeros(np.shape(top)))
    noise, probabilities, samples = CASES["2 classes, tied"]
    false = false_certificates(noise, probabilities, samples, method=method, alpha=ALPHA)
    assert not fits(false, ALPHA)


def test_most_of_alpha_is_used():
    """Within alpha, but not by wasting it: the bounds are not far wider than they need to be."""
    for method, least in (("votes", 0.7), ("paper", 0.8)):
        false = false_certificates(*CASES["2 classes, radius 1"], method=method, alpha=ALPHA)
        assert false > least * ALPHA * RUNS


def exact_failure(noise, samples, alpha, method, most=3):
    """The largest failure probability over shares of two classes at the thresholds of radii, relative to alpha."""
    from_counts = paper.from_counts if method == "paper" else by_votes.from_counts
    radii = np.empty(samples + 1, dtype=int)  # of a class with so many votes, if it is named
    for count in range(samples + 1):
        certificate = from_counts(np.array([count, samples - count]), noise, alpha=alpha, limits=(UNBOUNDED, UNBOUNDED))
        radii[count] = certificate.radius if certificate.label == 0 else -1
    worst = 0.0
    for flips in range(most + 1):
        share = 0.5 if flips == 0 else boundary(noise, flips, 0.0)
        chances = stats.binom.pmf(np.arange(samples + 1), samples, share)
        too_far, behind = chances[radii >= flips].sum(), chances[::-1][radii >= 0].sum()
        worst = max(worst, too_far + behind)
    return worst / alpha


EXACT = [
    (noise, samples, alpha)
    for noise in (EdgeNoise(keep=0.51), EdgeNoise(keep=0.55), EdgeNoise(keep=0.6), SYMMETRIC, UNEQUAL)
    for samples, alpha in ((6, 0.05), (8, 0.1), (8, 0.3), (29, 0.01), (44, 0.01), (100, 0.05))
]


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_failure_probability_is_at_most_alpha_exactly(method):
    """Few samples and large alpha, where naming a class that is behind is likeliest."""
    for noise, samples, alpha in EXACT:
        assert exact_failure(noise, samples, alpha, method) <= 1 + 1e-9, (noise, samples, alpha)


def test_the_papers_own_level_is_too_large_for_few_samples(monkeypatch):
    """At level alpha, as printed, the failure probability exceeds alpha: so the level is lowered there."""
    noise = EdgeNoise(keep=0.55)
    assert exact_failure(noise, 8, 0.1, "paper") <= 1
    monkeypatch.setattr(paper, "share_level", lambda samples, noise, alpha: alpha)
    assert exact_failure(noise, 8, 0.1, "paper") > 1.05
