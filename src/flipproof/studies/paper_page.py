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
from flipproof.graphs import IntArray
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
    """All claims of the paper's section on results, for its network and its method, in the words of claims.txt."""
    samples, keeps, shown = settings.samples(), settings.keeps, tables["gcn", settings.figure_keep]
    by_alpha = [shown.radii[Reading("paper", alpha, samples)] for alpha in settings.alphas]
    few, many = (Reading("paper", settings.alpha, settings.sample_counts[place]) for place in (0, -1))
    radii = [tables["gcn", keep].radii[many] for keep in keeps]

    # beyond what unanimous votes give under the next higher beta
    best = float(lower_bound(samples, samples, failure_prob=settings.alpha))
    ceilings = [radius(best, EdgeNoise(keep=keep)) for keep in keeps]
    betas = itertools.pairwise(zip(keeps, ceilings, radii, strict=True))
    reached = [
        (keep, above, ceiling, lower, interval(values > lower)) for (keep, ceiling, values), (above, lower, _) in betas
    ]

    right = [np.asarray(values >= 0, dtype=np.float64) for values in radii]
    steps = [interval(after - before) for before, after in itertools.pairwise(right)]
    wide = [interval(after - before) for before, after in zip(right, right[2:] or right[1:], strict=False)]

    gaps = [interval((by_alpha[0] >= r) * 1.0 - (by_alpha[-1] >= r)) for r in range(_SMALL + 1)]
    widest = max(range(_SMALL + 1), key=lambda r: gaps[r].high)
    gained_by_alpha = _gained_beyond(by_alpha[-1], by_alpha[0])

    gained_by_samples = _gained_beyond(shown.radii[few], shown.radii[many])
    # all betas together: how many graphs are close to abstaining differs much from beta to beta
    of_all = [tables["gcn", keep].radii for keep in keeps]
    gained_right = interval(np.concatenate([(own[many] >= 0) * 1.0 - (own[few] >= 0) for own in of_all]))

    certified = shown.radii[many] >= 0
    small = certified & (shown.radii[many] <= _SMALL)
    excess = interval(small - certified / 2)

    middle = keeps[len(keeps) // 2]
    readings = {name: Reading("paper", settings.alpha, settings.samples(name)) for name in ("gcn", "gin")}
    means = [interval(np.maximum(tables[name, middle].radii[one], 0)) for name, one in readings.items()]

    words = rendered(
        "claims.txt",
        settings=settings,
        small=_SMALL,
        alike=_ALIKE,
        reached=reached,
        accuracies=list(zip(keeps, map(interval, right), strict=True)),
        steps=steps,
        widest=widest,
        gap=gaps[widest],
        gained_by_alpha=gained_by_alpha,
        gained_by_samples=gained_by_samples,
        gained_right=gained_right,
        small_share=small.sum() / max(1, certified.sum()),
        excess=excess,
        middle=middle,
        means=means,
    ).splitlines()
    farther = all(beyond.low > 0 for *_, ceiling, lower, beyond in reached if ceiling != lower)
    holds = [
        ceilings[0] > ceilings[-1] and farther,
        all(step.low > 0 for step in wide) and all(step.high > 0 for step in steps),
        gaps[widest].high < _ALIKE and gained_by_alpha.low > 0,
        gained_by_samples.low > 0 and gained_right.low <= 0,
        excess.low > 0,
        all(mean.low > 0 for mean in means),
    ]
    return [Claim(*claim) for claim in zip(words[::3], words[1::3], words[2::3], map(bool, holds), strict=True)]


def _gained_beyond(few: IntArray, many: IntArray) -> Interval:
    return interval(np.maximum(many, _SMALL) - np.maximum(few, _SMALL))


_METHODS = ("paper", "votes", "influence")
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
    parts = data_split(settings)
    right = shown_share(floor * len(parts.test), len(parts.test))
    facts = rendered("paper_facts.txt", settings=settings, data=parts.describe(), floor=right).splitlines()
    marked = markdown_table(_claim_table(claims, no="**no**"))
    write_text(folder / "claims.md", rendered("paper.md", facts=facts, claim_table=marked, gains=markdown_table(gains)))
    figures = {stem.name: inline_svg(stem) for stem in stems}
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


def _claim_table(claims: Sequence[Claim], no: str = "no") -> list[list[str]]:
    head = ["claim", "judged by", "measured", "holds"]
    return [head, *([c.claim, c.judged_by, c.measured, "yes" if c.holds else no] for c in claims)]
