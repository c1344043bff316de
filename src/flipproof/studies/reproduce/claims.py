"""The paper's claims, held against what was measured. Each says what it was judged by; none is assumed to hold."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flipproof.certificates.bounds import lower_bound
from flipproof.certificates.metrics import shown_mean, shown_share
from flipproof.certificates.vote_share import radius
from flipproof.noise import EdgeNoise
from flipproof.studies.reproduce.experiment import Settings
from flipproof.studies.reproduce.readings import Table

__all__ = ["Claim", "judge"]

_SMALL = 3  # radii up to here are called small
_JUDGED_APART = (
    "largest difference between the curves at r <= {} and beyond, at beta {:g}; small r alike (at most {:g}), and the maximum "
    "radius {}"
)
_ALIKE = 0.05  # curves closer than this are called alike: less than the uncertainty of 160 graphs


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the numbers that bear on it, and whether they support it."""

    claim: str
    judged_by: str
    measured: str
    holds: bool


def judge(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> list[Claim]:
    """All claims of the paper's section on results, for its network and its method."""
    gcn = {keep: tables["gcn", keep] for keep in settings.keeps}
    return [
        _larger_radius(settings, gcn),
        _lower_accuracy(settings, gcn),
        _alpha(settings, gcn[settings.figure_keep]),
        _samples(settings, gcn[settings.figure_keep]),
        _small_radii(settings, gcn),
        _any_classifier(settings, tables),
    ]


def _larger_radius(settings: Settings, gcn: Mapping[float, Table]) -> Claim:
    found = [gcn[keep].largest_radius("paper", settings.alpha, settings.samples) for keep in settings.keeps]
    best = float(lower_bound(settings.samples, settings.samples, failure_prob=settings.alpha))
    ceilings = [radius(best, EdgeNoise(keep=keep)) for keep in settings.keeps]
    pairs = ", ".join(
        f"beta {keep:g}: {value} (at most {ceiling})"
        for keep, value, ceiling in zip(settings.keeps, found, ceilings, strict=True)
    )
    return Claim(
        "A lower beta gives a larger maximum certified radius",
        "largest radius of a correctly predicted test graph; does not increase with beta and is larger at the lowest beta "
        "than at the highest; in brackets the radius of unanimous votes",
        pairs,
        all(a >= b for a, b in itertools.pairwise(found)) and found[0] > found[-1],
    )


def _lower_accuracy(settings: Settings, gcn: Mapping[float, Table]) -> Claim:
    curves = [gcn[keep].curve("", "paper", settings.alpha, settings.samples, 0) for keep in settings.keeps]
    found = [float(curve.accuracy[0]) for curve in curves]
    measured = [shown_share(curve.certified[0], curve.graphs) for curve in curves]
    return Claim(
        "A lower beta gives a lower accuracy",
        "certified accuracy at r = 0; does not decrease with beta",
        ", ".join(f"beta {keep:g}: {value}" for keep, value in zip(settings.keeps, measured, strict=True)),
        all(a <= b for a, b in itertools.pairwise(found)),
    )


def _alpha(settings: Settings, table: Table) -> Claim:
    readings = {f"at alpha {alpha:g}": ("paper", alpha, settings.samples) for alpha in settings.alphas}
    small, largest, measured = _apart(settings, table, readings)
    return Claim(
        "alpha matters only at large r",
        _JUDGED_APART.format(_SMALL, settings.figure_keep, _ALIKE, "moves"),
        measured,
        small <= _ALIKE and largest[0] > largest[-1],
    )


def _samples(settings: Settings, table: Table) -> Claim:
    readings = {f"with {count:,} samples": ("paper", settings.alpha, count) for count in settings.sample_counts}
    small, largest, measured = _apart(settings, table, readings)
    return Claim(
        "More samples raise the maximum radius and leave small r alone",
        _JUDGED_APART.format(_SMALL, settings.figure_keep, _ALIKE, "grows"),
        measured,
        small <= _ALIKE and all(a < b for a, b in itertools.pairwise(largest)),
    )


def _apart(
    settings: Settings, table: Table, readings: Mapping[str, tuple[str, float, int]]
) -> tuple[float, list[int], str]:
    """The largest difference between curves at small r, their maximum radii, and both in words."""
    curves = [table.curve("", *reading, settings.max_radius).accuracy for reading in readings.values()]
    largest = [table.largest_radius(*reading) for reading in readings.values()]
    gaps = np.ptp(np.stack(curves), axis=0)
    small, large = float(gaps[: _SMALL + 1].max()), float(gaps[_SMALL + 1 :].max())
    radii = ", ".join(f"{value} {words}" for words, value in zip(readings, largest, strict=True))
    return small, largest, f"r <= {_SMALL}: {small:.3f}; r > {_SMALL}: {large:.3f}; maximum radius {radii}"


def _small_radii(settings: Settings, gcn: Mapping[float, Table]) -> Claim:
    shares, lines = {}, []
    for keep in settings.keeps:
        radii = gcn[keep].radii["paper", settings.alpha, settings.samples]
        certified = radii[radii >= 0]
        shares[keep] = float(np.mean(certified <= _SMALL)) if len(certified) else 1.0
        small = int((certified <= _SMALL).sum())
        share = shown_share(small, len(certified)) if len(certified) else "1"
        lines.append(f"beta {keep:g}: {share} of {len(certified)}")
    return Claim(
        "Most test graphs have a small certified radius",
        f"share of the correctly predicted test graphs with a radius of at most {_SMALL}; above 1/2 at beta "
        f"{settings.figure_keep:g}, where the paper says so (at high beta no radius can be larger)",
        ", ".join(lines),
        shares[settings.figure_keep] > 0.5,
    )


def _any_classifier(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> Claim:
    keep = settings.keeps[len(settings.keeps) // 2]
    reading = "paper", settings.alpha, settings.samples
    values = {network: tables[network, keep].average_radius(*reading) for network in ("gcn", "gin")}
    shown = {network: shown_mean(tables[network, keep].radii[reading]) for network in values}
    return Claim(
        "The method scales and applies to any base classifier",
        "the same code certifies two different networks; the certificate needs r + 1 regions for a graph of any size (times: "
        "seconds.json)",
        f"average certified radius at beta {keep:g}: GCN {shown['gcn']}, GIN {shown['gin']}",
        all(value > 0 for value in values.values()),
    )
