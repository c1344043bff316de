"""Figures, tables and the page that says which of the paper's claims hold."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates.metrics import CONFIDENCE, shown_share
from flipproof.certificates.vote_share import lower_bound, radius
from flipproof.files import write_json, write_text
from flipproof.noise import EdgeNoise
from flipproof.report.drawing import Panel, curves_figure
from flipproof.report.templates import inline_svg, markdown_table, rendered
from flipproof.studies.paper_experiment import Reading, Settings, Table, data_split, edge_blind_accuracy, read_tables

_SMALL = 3  # radii up to here are called small
_ALIKE = 0.05  # curves closer than this are called alike: less than 160 graphs can tell
_DRAWS = 4_000


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the numbers that bear on it, and whether they support it."""

    claim: str
    judged_by: str
    measured: str
    holds: bool


class Interval(NamedTuple):
    """A mean over graphs and networks, with its interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ({self.low:.3f} to {self.high:.3f})"


def interval(values: ArrayLike) -> Interval:
    """Mean of values ``[networks, graphs]`` and its 95% interval, as for a random sample of graphs.

    >>> interval([[0, 1] * 50, [0, 1] * 50])
    Interval(mean=0.5, low=0.4, high=0.6)
    """
    graphs = np.asarray(values, dtype=np.float64).mean(axis=0)
    drawn = np.random.default_rng(0).integers(len(graphs), size=(_DRAWS, len(graphs)))
    low, high = np.quantile(graphs[drawn].mean(axis=1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(float(graphs.mean()), round(float(low), 6), round(float(high), 6))


def judge(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> list[Claim]:
    """All claims of the paper's section on results, for its network and its method."""
    reading = Reading("paper", settings.alpha, settings.samples())
    radii = [tables["gcn", keep].radii[reading] for keep in settings.keeps]
    shown = tables["gcn", settings.figure_keep]
    strict, loose = (shown.radii[Reading("paper", settings.alphas[place], settings.samples())] for place in (-1, 0))
    return [
        _larger_radius(settings, radii),
        _lower_accuracy(settings, radii),
        _alpha(settings, strict, loose),
        _samples(settings, [tables["gcn", keep] for keep in settings.keeps], shown),
        _small_radii(settings, radii[settings.keeps.index(settings.figure_keep)]),
        _any_classifier(settings, tables),
    ]


def _larger_radius(settings: Settings, radii: Sequence[NDArray[np.int64]]) -> Claim:
    samples = settings.samples()
    best = float(lower_bound(samples, samples, failure_prob=settings.alpha))
    ceilings = [radius(best, EdgeNoise(keep=keep)) for keep in settings.keeps]
    words, holds = [], bool(ceilings[0] > ceilings[-1])
    betas = zip(settings.keeps, ceilings, radii, strict=True)
    for (keep, ceiling, values), (above, lower, _) in itertools.pairwise(betas):
        if ceiling == lower:
            words.append(f"beta {keep:g} and {above:g}: {ceiling} flips at most under both")
            continue
        beyond = interval(values > lower)
        words.append(f"beta {keep:g}: {beyond} beyond {lower} flips, of which beta {above:g} allows no more")
        holds = holds and beyond.low > 0
    return Claim(
        "A lower beta gives a larger maximum certified radius",
        "share of test graphs that are certified beyond what unanimous votes give under the next higher beta; the interval lies "
        "above 0 for every beta",
        "; ".join(words),
        bool(holds),
    )


def _lower_accuracy(settings: Settings, radii: Sequence[NDArray[np.int64]]) -> Claim:
    right = [np.asarray(values >= 0, dtype=np.float64) for values in radii]
    steps = [interval(after - before) for before, after in itertools.pairwise(right)]
    wide = [interval(after - before) for before, after in zip(right, right[2:] or right[1:], strict=False)]
    shown = [f"beta {keep:g}: {interval(values)}" for keep, values in zip(settings.keeps, right, strict=True)]
    gains = ", ".join(str(step) for step in steps)
    return Claim(
        "A lower beta gives a lower accuracy",
        "certified accuracy at r = 0; between betas two steps apart the interval of its difference lies above 0, and that of no "
        "single step lies below 0",
        f"{', '.join(shown)}; steps {gains}",
        all(step.low > 0 for step in wide) and all(step.high > 0 for step in steps),
    )


def _alpha(settings: Settings, strict: NDArray[np.int64], loose: NDArray[np.int64]) -> Claim:
    gaps = [interval((loose >= r) * 1.0 - (strict >= r)) for r in range(_SMALL + 1)]
    widest = max(range(_SMALL + 1), key=lambda r: gaps[r].high)
    beyond = _gained_beyond(strict, loose)
    return Claim(
        "alpha matters only at large r",
        f"alpha {settings.alphas[-1]:g} and {settings.alphas[0]:g} at beta {settings.figure_keep:g}: at every r <= {_SMALL} the "
        f"interval of the gap between the curves lies below {_ALIKE:g}; that of the flips gained beyond {_SMALL} lies above 0",
        f"widest gap at r = {widest}: {gaps[widest]}; flips gained beyond {_SMALL}, per graph: {beyond}",
        gaps[widest].high < _ALIKE and beyond.low > 0,
    )


def _samples(settings: Settings, gcn: Sequence[Table], shown: Table) -> Claim:
    few, many = (Reading("paper", settings.alpha, settings.sample_counts[place]) for place in (0, -1))
    beyond = _gained_beyond(shown.radii[few], shown.radii[many])
    # all betas together: how many graphs are close to abstaining differs much from beta to beta
    right = interval(np.concatenate([(table.radii[many] >= 0) * 1.0 - (table.radii[few] >= 0) for table in gcn]))
    why = "; graphs whose share of votes is just above 1/2 need them" if right.low > 0 else ""
    return Claim(
        "More samples raise the maximum radius and leave small r alone",
        f"{few.samples:,} and {many.samples:,} samples: the interval of the flips gained beyond {_SMALL} at beta "
        f"{settings.figure_keep:g} lies above 0; that of the gain at r = 0, over all betas, does not",
        f"flips gained beyond {_SMALL}, per graph: {beyond}; gain at r = 0: {right}{why}",
        beyond.low > 0 and right.low <= 0,
    )


def _gained_beyond(few: NDArray[np.int64], many: NDArray[np.int64]) -> Interval:
    return interval(np.maximum(many, _SMALL) - np.maximum(few, _SMALL))


def _small_radii(settings: Settings, radii: NDArray[np.int64]) -> Claim:
    certified, small = radii >= 0, (radii >= 0) & (radii <= _SMALL)
    excess = interval(small - certified / 2)
    share = small.sum() / max(1, certified.sum())
    return Claim(
        "Most test graphs have a small certified radius",
        f"correctly predicted test graphs at beta {settings.figure_keep:g}: the share of graphs with a radius of at most "
        f"{_SMALL}, less half the share of all that are certified, lies above 0 with its interval",
        f"{share:.2f} of the certified ones; excess {excess}",
        excess.low > 0,
    )


def _any_classifier(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> Claim:
    keep = settings.keeps[len(settings.keeps) // 2]
    readings = {name: Reading("paper", settings.alpha, settings.samples(name)) for name in ("gcn", "gin")}
    means = {name: interval(np.maximum(tables[name, keep].radii[reading], 0)) for name, reading in readings.items()}
    return Claim(
        "The method scales and applies to any base classifier",
        "the same code certifies two different networks; the intervals of their average radii lie above 0. The certificate needs "
        "r + 1 regions for a graph of any size",
        f"average certified radius at beta {keep:g}: GCN {means['gcn']}, GIN {means['gin']}",
        all(mean.low > 0 for mean in means.values()),
    )


_METHODS = ("paper", "votes", "influence")
_CAPTIONS = (
    "Impact of the keep probability: the paper's first figure.",
    "Impact of alpha, read from the same votes: the paper's second figure.",
    "Impact of the number of samples, read from the same votes: the paper's third figure.",
    "Beyond the paper: what our certificates get out of the same votes, for the paper's network, for a stronger one trained for "
    "accuracy, and for the same one trained for the radius. "
    "Dotted red: a classifier that ignores edges, certified at every radius.",
)
_NETWORKS = {"gcn": "GCN", "gin": "GIN", "gin-radius": "GIN for the radius"}


@dataclass(frozen=True, eq=False)
class Reproduced:
    """What came out: the files written, the claims, and the certificates compared, with a head."""

    paths: list[Path]
    claims: list[Claim]
    gains: list[list[str]]
    edge_blind_accuracy: float


def write_paper(settings: Settings, folder: Path) -> Reproduced:
    """Everything that follows from the certificates: figures with their numbers, the table of gains, claims, the page."""
    tables = read_tables(settings, folder)
    floor = edge_blind_accuracy(settings)
    stems = _figures(settings, folder / "figures", tables, floor)
    claims, gains = judge(settings, tables), gain_table(settings, tables)
    write_json(folder / "claims.json", [asdict(claim) for claim in claims])
    facts = _facts(settings, floor)
    marked = markdown_table(_claim_table(claims, no="**no**"))
    write_text(folder / "claims.md", rendered("paper.md", facts=facts, claim_table=marked, gains=markdown_table(gains)))
    figures = [(stem.name, caption, inline_svg(stem)) for stem, caption in zip(stems, _CAPTIONS, strict=True)]
    shown: dict[str, Any] = {"claims": claims, "claim_table": _claim_table(claims), "figures": figures, "gains": gains}
    write_text(folder / "index.html", rendered("paper.html", facts=facts, **shown))
    pictures = [stem.with_suffix(".png") for stem in stems]
    return Reproduced([folder / "index.html", folder / "claims.md", *pictures], claims, gains, floor)


def _figures(settings: Settings, folder: Path, tables: Mapping[tuple[str, float], Table], floor: float) -> list[Path]:
    alpha, samples, keep = settings.alpha, settings.samples(), settings.figure_keep
    varied = {
        "beta": ("keep probability beta", {f"{k:g}": (k, alpha, samples) for k in settings.keeps}),
        "alpha": ("failure probability alpha", {f"{a:g}": (keep, a, samples) for a in settings.alphas}),
        "samples": ("samples per graph", {f"{count:,}": (keep, alpha, count) for count in settings.sample_counts}),
    }
    fixed = {"beta": f"beta {keep:g}", "alpha": f"alpha {alpha:g}", "samples": f"{samples:,} samples"}
    for name, (legend, choices) in varied.items():
        title = ", ".join(["Algorithm 1, two-layer GCN", *(words for other, words in fixed.items() if other != name)])
        curves = (
            tables["gcn", k].curve(label, Reading("paper", a, count), settings.max_radius)
            for label, (k, a, count) in choices.items()
        )
        curves_figure(folder / name, [Panel(title, tuple(curves))], legend=legend)
    panels = []
    for (network, title), k in itertools.product(_NETWORKS.items(), settings.keeps):
        readings = [Reading(method, alpha, settings.samples(network)) for method in _METHODS]
        compared = (tables[network, k].curve(one.method, one, settings.max_radius) for one in readings)
        panels.append(Panel(f"{title}, beta {k:g}", tuple(compared), floor))
    curves_figure(folder / "gain", panels, most=len(settings.keeps), title="The same votes, three certificates")
    return [folder / name for name in (*varied, "gain")]


def gain_table(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> list[list[str]]:
    """Average certified radius and certified accuracy at small radii, for each network, beta and certificate."""
    small = (0, 1, 2, 3, 5)
    rows = [["network", "beta", "certificate", "ACR", *(f"CA({r})" for r in small)]]
    for network, keep, method in itertools.product(_NETWORKS, settings.keeps, _METHODS):
        radii = tables[network, keep].radii[Reading(method, settings.alpha, settings.samples(network))]
        cells = [_cell(np.maximum(radii, 0)), *(_cell(radii >= r) for r in small)]
        rows.append([_NETWORKS[network], f"{keep:g}", method, *cells])
    return rows


def _cell(values: NDArray[Any]) -> str:
    """Mean, half the range over networks, and the interval over graphs, of values ``[networks, graphs]``."""
    mean, low, high = interval(values)
    return f"{mean:.3f} ±{np.ptp(values.mean(axis=1)) / 2:.3f} ({low:.2f}-{high:.2f})"


def _facts(settings: Settings, floor: float) -> list[str]:
    graphs = len(data_split(settings).test)
    return [
        data_split(settings).describe(),
        f"{settings.networks} networks of each kind, which differ in their initial weights. Figures show their mean and a band "
        "from the lowest to the highest network; claims are judged on all test graphs of all of them.",
        f"{settings.samples():,} samples per graph for the GCN, {settings.gin_samples:,} for the GINs; alpha "
        f"{settings.alpha:g} for each graph, seed {settings.seed}.",
        "A classifier that ignores edges (only the number of nodes) is right on "
        f"{shown_share(floor * graphs, graphs)} of the test graphs, at every radius.",
        "In brackets: 95% intervals, as for a random sample of test graphs; after ±: half the range over the networks.",
    ]


def _claim_table(claims: Sequence[Claim], no: str = "no") -> list[list[str]]:
    head = ["claim", "judged by", "measured", "holds"]
    return [head, *([c.claim, c.judged_by, c.measured, "yes" if c.holds else no] for c in claims)]
