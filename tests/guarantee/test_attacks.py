"""No attack succeeds within a certified radius; and this very test finds a radius that is one too large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import flipproof as fp
from support.attacked import ExactSmoothed, trained
from support.cube import KINDS, Cube, classifier

EXACT = ("random", "greedy", "exhaustive")
NOISES = (fp.EdgeNoise(keep=0.8), fp.EdgeNoise(keep=0.9), fp.EdgeNoise(add=0.05, remove=0.3))


def cubes(count: int, slots: int) -> list[Cube]:
    """Smoothed classifiers of graphs of 4 or 5 nodes, of every kind, whose answer is not a tie."""
    found: list[Cube] = []
    seed = 0
    while len(found) < count:
        rng = np.random.default_rng([slots, seed])
        clean = rng.random(slots) < 0.5
        kind, num_classes = KINDS[seed % len(KINDS)], 2 + seed % 2
        cube = Cube(NOISES[seed % 3], clean, classifier(kind, slots, num_classes, clean, rng), num_classes)
        seed += 1
        if 0 <= cube.radius() < slots:
            found.append(cube)
    return found


def broken(cubes: Sequence[Cube], radii: Sequence[int], attacks: Sequence[str] = EXACT) -> list[int]:
    """Which claims "no attack of so many flips works" an attack at some budget within the radius refutes."""
    refuted = []
    for index, (cube, radius) in enumerate(zip(cubes, radii, strict=True)):
        exact, label = ExactSmoothed(cube), int(cube.shares.argmax())
        results = (
            fp.attacks.by_name(name)(exact, cube.graph, budget=budget, label=label, num_classes=cube.num_classes)
            for budget in range(1, radius + 1)
            for name in attacks
        )
        if any(result.success for result in results):
            refuted.append(index)
    return refuted


def certified(cube: Cube) -> int:
    """The radius from the exact shares: no sampling, so that it holds always."""
    ranked = np.sort(cube.shares)
    return int(fp.radius(float(ranked[-1]) - 1e-9, cube.noise, float(ranked[-2]) + 1e-9))


def check_cubes(count: int, slots: int) -> None:
    given = cubes(count, slots)
    assert broken(given, [certified(cube) for cube in given]) == []
    assert broken(given, [cube.radius() for cube in given]) == []
    planted = [cube.radius() + 1 for cube in given]
    found = broken(given, planted)
    assert len(found) >= 0.9 * count, "radii that are one too large must be found out"


def test_exact_smoothed_classifiers_hold_their_radius() -> None:
    check_cubes(count=20, slots=6)


def test_a_certificate_one_too_large_is_found_out() -> None:
    """Where the certified radius is the true one, one more is false, and the attacks see it."""
    tight = [cube for cube in cubes(40, 6) if certified(cube) == cube.radius()]
    assert len(tight) >= 5
    assert len(broken(tight, [certified(cube) + 1 for cube in tight])) >= 0.9 * len(tight)


@pytest.mark.guarantee
def test_exact_smoothed_classifiers_hold_their_radius_on_five_nodes() -> None:
    check_cubes(count=60, slots=10)


def smoothed_network(keep: float = 0.9) -> tuple[fp.SmoothedClassifier, fp.datasets.Dataset]:
    network, test = trained("gin", keep)
    return fp.SmoothedClassifier(network, fp.EdgeNoise(keep=keep), features="degree"), test


def smallest_attacks(
    smooth: fp.SmoothedClassifier, claims: Sequence[tuple[fp.Graph, int, int]], attacks: Sequence[str]
) -> list[int | None]:
    """For each graph, label and radius the size of an attack within the radius that succeeds: the claim is then false."""
    found: list[int | None] = []
    for graph, label, radius in claims:
        result = fp.attacks.strongest(
            smooth, graph, budget=radius, label=label, attacks=attacks, samples=96, confirm_samples=3000
        )
        found.append(result.size if result.success else None)
    return found


def check_certificates(
    graphs: int, samples: int, attacks: Sequence[str], *, least_radii: int, least_found: int
) -> None:
    smooth, test = smoothed_network()
    certificates = smooth.certify_all(test[:graphs], samples=samples, seed=1)
    claims = [
        (graph, certificate.label, certificate.radius)
        for graph, certificate in zip(test, certificates, strict=False)
        if certificate.label is not None
    ]
    assert sum(radius > 0 for *_, radius in claims) >= least_radii
    assert set(smallest_attacks(smooth, claims, attacks)) <= {None}
    # plant radii that are one larger than the truth allows: as large as an attack that works
    wider = [(graph, label, radius + 3) for graph, label, radius in claims]
    sizes = smallest_attacks(smooth, wider, ["greedy"])
    planted = [(graph, label, size) for (graph, label, _), size in zip(claims, sizes, strict=True) if size is not None]
    assert len(planted) >= least_found
    assert all(size > radius for size, (*_, radius) in zip(sizes, claims, strict=True) if size is not None)
    refuted = [size is not None for size in smallest_attacks(smooth, planted, attacks)]
    assert np.mean(refuted) >= 0.75


@pytest.mark.guarantee
@pytest.mark.parametrize(
    ("graphs", "samples", "attacks", "least_radii", "least_found"),
    [(12, 1000, ["greedy"], 2, 2), (32, 10_000, ["random", "greedy", "gradient"], 10, 5)],
)
def test_no_attack_succeeds_within_sampled_certificates(
    graphs: int, samples: int, attacks: list[str], least_radii: int, least_found: int
) -> None:
    check_certificates(graphs, samples, attacks, least_radii=least_radii, least_found=least_found)
