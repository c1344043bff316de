"""Figures, tables and the page that says which of the paper's claims hold."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.metrics import shown_share
from flipproof.files import write_json, write_text
from flipproof.report.study_figures import NetworksPanel, networks_figure, networks_grid
from flipproof.report.templates import asset, html_table, inline_svg, markdown_table
from flipproof.studies.reproduce.claims import Claim, interval, judge
from flipproof.studies.reproduce.experiment import Settings, data_split, edge_blind_accuracy
from flipproof.studies.reproduce.readings import CERTIFICATES, Reading, Table, read_certificates

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
    paths: dict[tuple[str, float], list[Path]] = {}
    for model in settings.certified():
        assert model.keep is not None
        paths.setdefault((model.network, model.keep), []).append(model.run(folder) / CERTIFICATES)
    tables = {kind: read_certificates(files) for kind, files in paths.items()}
    floor = edge_blind_accuracy(settings, folder)
    stems = _figures(settings, folder / "figures", tables, floor)
    claims = judge(settings, tables)
    gains = gain_table(settings, tables)
    write_json(folder / "claims.json", [asdict(claim) for claim in claims])
    write_text(folder / "claims.md", _markdown(settings, claims, gains, floor))
    write_text(folder / "index.html", _page(settings, stems, claims, gains, floor))
    pictures = [stem.with_suffix(".png") for stem in stems]
    return Reproduced([folder / "index.html", folder / "claims.md", *pictures], claims, gains, floor)


def _figures(settings: Settings, folder: Path, tables: Mapping[tuple[str, float], Table], floor: float) -> list[Path]:
    alpha, samples, keep = settings.alpha, settings.samples, settings.figure_keep
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
        networks_figure(folder / name, NetworksPanel(title, tuple(curves)), legend=legend)
    readings = {method: Reading(method, alpha, settings.gain_samples) for method in _METHODS}
    rows = [
        [
            NetworksPanel(
                f"{title}, beta {k:g}",
                tuple(tables[network, k].curve(method, r, settings.max_radius) for method, r in readings.items()),
                floor,
            )
            for k in settings.keeps
        ]
        for network, title in _NETWORKS.items()
    ]
    networks_grid(folder / "gain", rows, title=f"The same {settings.gain_samples:,} votes, three certificates")
    return [folder / name for name in (*varied, "gain")]


def gain_table(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> list[list[str]]:
    """Average certified radius and certified accuracy at small radii, for each network, beta and certificate."""
    small = (0, 1, 2, 3, 5)
    rows = [["network", "beta", "certificate", "ACR", *(f"CA({r})" for r in small)]]
    for network, keep, method in itertools.product(_NETWORKS, settings.keeps, _METHODS):
        radii = tables[network, keep].radii[Reading(method, settings.alpha, settings.gain_samples)]
        cells = [_cell(np.maximum(radii, 0)), *(_cell(radii >= r) for r in small)]
        rows.append([_NETWORKS[network], f"{keep:g}", method, *cells])
    return rows


def _cell(values: NDArray[Any]) -> str:
    """Mean, half the range over networks, and the interval over graphs, of values ``[networks, graphs]``."""
    mean, low, high = interval(values)
    return f"{mean:.3f} ±{np.ptp(values.mean(axis=1)) / 2:.3f} ({low:.2f}-{high:.2f})"


def _facts(settings: Settings, floor: float) -> list[str]:
    return [
        data_split(settings).describe(),
        f"{settings.networks} networks of each kind, which differ in their initial weights. Figures show their mean and a band "
        "from the lowest to the highest network; claims are judged on all test graphs of all of them.",
        f"{settings.samples:,} samples per graph for the paper's figures, {settings.gain_samples:,} where certificates are "
        f"compared; alpha {settings.alpha:g} for each graph, seed {settings.seed}.",
        f"A network that sees no edges (only the number of nodes) is right on {_floor(settings, floor)} of the test graphs, "
        "at every radius.",
        "In brackets: 95% intervals, as for a random sample of test graphs; after ±: half the range over the networks.",
    ]


def _floor(settings: Settings, floor: float) -> str:
    graphs = len(data_split(settings).test)
    return shown_share(floor * graphs, graphs)


def _claim_table(claims: Sequence[Claim], no: str = "no") -> list[list[str]]:
    head = ["claim", "judged by", "measured", "holds"]
    return [head, *([c.claim, c.judged_by, c.measured, "yes" if c.holds else no] for c in claims)]


def _markdown(settings: Settings, claims: Sequence[Claim], gains: Sequence[Sequence[str]], floor: float) -> str:
    lines = ["# The paper's claims, measured", "", *(f"- {fact}" for fact in _facts(settings, floor)), ""]
    rows = _claim_table(claims, no="**no**")
    lines += [
        *markdown_table(rows),
        "",
        "## Other certificates from the same votes",
        "",
        *markdown_table(gains),
    ]
    return "\n".join([*lines, ""])


_HOLDS = {"yes": "yes", "no": "no"}
_CAPTIONS = (
    "Impact of the keep probability: the paper's first figure.",
    "Impact of alpha, read from the same votes: the paper's second figure.",
    "Impact of the number of samples, read from the same votes: the paper's third figure.",
    "Beyond the paper: what our certificates get out of the same votes, for the paper's network, for a stronger one trained for "
    "accuracy, and for the same one trained for the radius. "
    "Dotted red: a network that sees no edges, certified at every radius.",
)


def _page(
    settings: Settings,
    stems: Sequence[Path],
    claims: Sequence[Claim],
    gains: Sequence[Sequence[str]],
    floor: float,
) -> str:
    rows = _claim_table(claims)
    figures = "".join(
        f'<figure><div class="plate" tabindex="0" role="img" aria-label="{html.escape(caption)}">{inline_svg(stem)}</div>'
        f"<figcaption>{html.escape(caption)} Numbers: figures/{stem.name}.csv.</figcaption></figure>"
        for stem, caption in zip(stems, _CAPTIONS, strict=True)
    )
    facts = "".join(f"<li>{html.escape(fact)}</li>" for fact in _facts(settings, floor))
    held = sum(claim.holds for claim in claims)
    style = asset("page.css")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f'<title>The paper, reproduced</title><style>{style}</style></head><body><header class="masthead">'
        '<p class="brand">flipproof</p>'
        "<h1>Certified robustness of graph classification, reproduced</h1>"
        '<p class="soft">Gao, Hu, Gong, GLOBECOM 2020. What differs from the printed text: docs/paper.md.</p></header>'
        f"<main><p>{held} of {len(claims)} claims of the paper hold in this run.</p>"
        f'<ul class="facts">{facts}</ul>'
        f'<h2>Claims of the paper</h2><div class="prose">{html_table(rows, classes=_HOLDS)}</div>'
        f'<h2>Figures</h2><div class="plates">{figures}</div>'
        f"<h2>Certificates compared</h2>{html_table(gains)}</main></body></html>\n"
    )
