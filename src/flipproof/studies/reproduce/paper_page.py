"""Figures, tables and the page that says which of the paper's claims hold."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from flipproof.certificates.metrics import shown_mean, shown_share
from flipproof.certificates.sampled_votes import METHODS
from flipproof.files import write_json, write_text
from flipproof.report.drawing import Panel, comparison_figure, curves_figure
from flipproof.report.templates import asset, html_table, inline_svg, markdown_table
from flipproof.studies.reproduce.claims import Claim, judge
from flipproof.studies.reproduce.experiment import Settings, data_split, edge_blind_accuracy
from flipproof.studies.reproduce.readings import CERTIFICATES, Table, read_certificates

__all__ = ["Reproduced", "write_paper"]

_OURS = [method for method in ("votes", "influence") if method in METHODS]
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
    tables = {
        (job.network, job.keep): read_certificates(job.run(folder) / CERTIFICATES)
        for job in settings.jobs()
        if job.keep is not None
    }
    floor = edge_blind_accuracy(settings, folder)
    stems = _figures(settings, folder / "figures", tables, floor)
    claims = judge(settings, tables)
    gains = _gain_table(settings, tables)
    write_json(folder / "claims.json", [asdict(claim) for claim in claims])
    write_text(folder / "claims.md", _markdown(settings, claims, gains, floor))
    write_text(folder / "index.html", _page(settings, stems, claims, gains, floor))
    pictures = [stem.with_suffix(".png") for stem in stems]
    return Reproduced([folder / "index.html", folder / "claims.md", *pictures], claims, gains, floor)


def _figures(settings: Settings, folder: Path, tables: Mapping[tuple[str, float], Table], floor: float) -> list[Path]:
    alpha, samples, top, keep = settings.alpha, settings.samples, settings.max_radius, settings.figure_keep
    shown = tables["gcn", keep]
    stems = [folder / name for name in ("beta", "alpha", "samples", "gain")]
    curves_figure(
        stems[0],
        [tables["gcn", k].curve(f"{k:g}", "paper", alpha, samples, top) for k in settings.keeps],
        title=f"Algorithm 1, two-layer GCN, alpha {alpha:g}, {samples:,} samples",
        legend="keep probability beta",
    )
    curves_figure(
        stems[1],
        [shown.curve(f"{a:g}", "paper", a, samples, top) for a in settings.alphas],
        title=f"Algorithm 1, two-layer GCN, beta {keep:g}, {samples:,} samples",
        legend="failure probability alpha",
    )
    curves_figure(
        stems[2],
        [shown.curve(f"{count:,}", "paper", alpha, count, top) for count in settings.sample_counts],
        title=f"Algorithm 1, two-layer GCN, beta {keep:g}, alpha {alpha:g}",
        legend="samples per graph",
    )
    rows = [
        [
            Panel(
                f"{name}, beta {k:g}",
                tuple(tables[network, k].curve(method, method, alpha, samples, top) for method in ("paper", *_OURS)),
                floor,
            )
            for k in settings.keeps
        ]
        for network, name in _NETWORKS.items()
    ]
    comparison_figure(stems[3], rows, title="The same votes, three certificates")
    return stems


def _gain_table(settings: Settings, tables: Mapping[tuple[str, float], Table]) -> list[list[str]]:
    """Average certified radius and certified accuracy at small radii, for each network, beta and certificate."""
    radii = (0, 1, 2, 3, 5)
    rows = [["network", "beta", "certificate", "ACR", *(f"CA({r})" for r in radii)]]
    for network, keep, method in itertools.product(_NETWORKS, settings.keeps, ("paper", *_OURS)):
        if (network, keep) not in tables:
            continue
        table, reading = tables[network, keep], (method, settings.alpha, settings.samples)
        curve = table.curve("", *reading, radii[-1])
        numbers = [shown_mean(table.radii[reading]), *(shown_share(curve.certified[r], curve.graphs) for r in radii)]
        rows.append([_NETWORKS[network], f"{keep:g}", method, *numbers])
    return rows


def _facts(settings: Settings, floor: float) -> list[str]:
    return [
        data_split(settings).describe(),
        f"{settings.samples:,} samples per graph, alpha {settings.alpha:g} for each graph, seed {settings.seed}.",
        f"A network that sees no edges (only the number of nodes) is right on {_floor(settings, floor)} of the test graphs, "
        "at every radius.",
        "In brackets: 95% intervals, as for a random sample of test graphs.",
        "The certificates are exact for the networks of this run; training is not: another machine or seed gives other weights, "
        "and figures several points apart (docs/benchmarks/influence.md has mean and spread over several seeds).",
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
