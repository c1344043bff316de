"""The paper's Algorithm 1 against a literal, slow one; and what is wrong with the theorem as printed."""

import itertools
from fractions import Fraction
from functools import cache

import pytest
from scipy import stats

from flipproof import EdgeNoise, Graph, certify_counts, radius
from flipproof.certificates.paper import share_level
from support.exact import lower_from

FOUR_SLOTS = Graph(4, [(0, 1), (1, 2)], frozen=[(0, 3), (2, 3)])
SIX_SLOTS = Graph(4, [(0, 1), (1, 2)])

Regions = dict[int, tuple[Fraction, Fraction]]


@cache
def regions(noise, slots, flips):
    """H(e): all ``2**N`` noisy graphs by ``Pr(X = z) / Pr(Y = z) = (beta / (1 - beta))**e``; masses of X and Y.

    The clean graph is the zero vector, the attack flips the first slots: the noise is symmetric.
    """
    beta = 1 - Fraction(noise.add_threshold, 2**32)
    masses: Regions = {e: (Fraction(0), Fraction(0)) for e in range(-slots, slots + 1)}
    for z in itertools.product((0, 1), repeat=slots):
        from_clean = sum(z)
        from_attacked = sum(z[:flips]) * -1 + flips + sum(z[flips:])
        x = beta ** (slots - from_clean) * (1 - beta) ** from_clean
        y = beta ** (slots - from_attacked) * (1 - beta) ** from_attacked
        e = from_attacked - from_clean
        masses[e] = (masses[e][0] + x, masses[e][1] + y)
    return masses


def as_meant(noise, slots, flips, p_a, p_b):
    """Q1 in descending, Q2 in ascending order of Pr(X)/Pr(Y)."""
    masses = regions(noise, slots, flips)
    ascending = [masses[e] for e in sorted(masses)]
    return lower_from(ascending[::-1], p_a) > lower_from(ascending, p_b)


def as_printed(noise, slots, flips, p_a, p_b):
    """The constraint of the optimisation problem in Theorem 1, letter by letter: ascending order for both."""
    masses = regions(noise, slots, flips)
    x, y = zip(*(masses[e] for e in sorted(masses)), strict=True)

    def mu(share):
        return next(m for m in range(1, len(x) + 1) if sum(x[:m]) >= share)

    mu_1, mu_2 = mu(p_a), mu(p_b)
    left = sum(y[mu_2 - 1 : mu_1 - 1]) + (p_a - sum(x[: mu_1 - 1])) * y[mu_1 - 1] / x[mu_1 - 1]
    right = (p_b - sum(x[: mu_2 - 1])) * y[mu_2 - 1] / x[mu_2 - 1]
    return bool(left > right)


def algorithm_1(counts, noise, alpha, slots):
    """Label and radius, with scipy's own functions and a search upwards."""
    c_a, c_b = sorted(range(len(counts)), key=lambda c: -counts[c])[:2]
    samples = sum(counts)
    p_a = stats.beta.ppf(alpha, counts[c_a], samples - counts[c_a] + 1)
    bpv = stats.binomtest(counts[c_a], counts[c_a] + counts[c_b], 0.5).pvalue
    if bpv > alpha or p_a <= 0.5:
        return None, -1
    share = Fraction(float(p_a))
    flips = 0
    while flips < slots and as_meant(noise, slots, flips + 1, share, 1 - share):
        flips += 1
    return c_a, flips


@pytest.mark.parametrize("keep", [0.55, 0.6, 0.7, 0.8, 0.9, 0.99])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_algorithm_1_against_a_literal_one(keep, alpha):
    noise, seen = EdgeNoise(keep=keep), set()
    for samples in (10, 100, 1000, 10_000):
        for share in (0.3, 0.5, 0.52, 0.6, 0.7, 0.8, 0.9, 0.96, 0.99, 1.0):
            top = round(share * samples)
            rest = samples - top
            for counts in ([top, rest], [rest // 2, top, rest - rest // 2], [0, rest, 0, top]):
                certificate = certify_counts(counts, noise, alpha=alpha, method="paper", graph=SIX_SLOTS)
                label, wanted = algorithm_1(counts, noise, alpha, 6)
                if share_level(samples, noise, alpha) > (1 - 1e-6) * alpha:
                    assert (certificate.label, certificate.radius) == (label, wanted), counts
                    seen.add(certificate.radius)
                else:  # too few samples for the paper's level
                    assert certificate.radius <= wanted, counts
    assert -1 in seen
    assert len(seen) > 2, "abstains, and more than one radius"


def test_level_is_halved_where_the_papers_would_not_do():
    """Where a class that is behind may well win the vote: few samples, or hardly any radius to lose."""
    for noise, counts, level in (
        (EdgeNoise(keep=0.55), [700, 300], 0.01),
        (EdgeNoise(keep=0.55), [35, 15], 0.005),
        (EdgeNoise(keep=0.501), [700, 300], 0.005),
        (EdgeNoise(add=0.1, remove=0.2), [700, 300], 0.01),
    ):
        certificate = certify_counts(counts, noise, alpha=0.01, method="paper")
        assert certificate.p_lower == pytest.approx(stats.beta.ppf(level, counts[0], counts[1] + 1), rel=1e-5)


def smoothed_share(noise, graph_state, answers):
    """Probability that the base classifier answers 1 on the noisy version of a graph, by listing all of them."""
    flip = Fraction(noise.add_threshold, 2**32)
    total = Fraction(0)
    for z, answer in answers.items():
        changed = sum(a != b for a, b in zip(z, graph_state, strict=True))
        total += answer * flip**changed * (1 - flip) ** (len(z) - changed)
    return total


def test_the_printed_theorem_certifies_something_false():
    """Four slots; the base classifier looks at one slot only, so an attacker needs one flip."""
    noise = EdgeNoise(keep=0.8)
    clean = tuple(int(state) for state in FOUR_SLOTS.slot_states)
    answers = {z: int(z[0] == clean[0]) for z in itertools.product((0, 1), repeat=4)}
    p_a = smoothed_share(noise, clean, answers)
    assert p_a > Fraction(1, 2), "the smoothed classifier says class 1"
    attacked = (1 - clean[0], *clean[1:])
    assert smoothed_share(noise, attacked, answers) < Fraction(1, 2), "one flip changes its mind"

    assert all(as_printed(noise, 4, flips, p_a, 1 - p_a) for flips in range(1, 5)), "printed: withstands all"
    assert not as_meant(noise, 4, 1, p_a, 1 - p_a)
    assert radius(float(p_a), noise) == 0
    counts = [2000, 8000]  # the very shares of this classifier
    for method in ("votes", "paper"):
        assert certify_counts(counts, noise, method=method, graph=FOUR_SLOTS).radius == 0
