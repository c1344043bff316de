"""The report as one HTML file: headline in words, interactive curves, a table of all graphs, each graph on a click.

Everything is inside the file, and its content security policy allows no request and no script but its own. What users have
named (runs, data, classes, graphs) reaches the page escaped, as text. The words are in ``templates/headline.html``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from flipproof import __version__
from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.certificates.metrics import Curve, PairedTest, mean_radius, mean_radius_interval
from flipproof.report.content import CertifiedRun, curve_range, paired, percent, share_text
from flipproof.report.script_data import script_data
from flipproof.report.templates import asset, policy, rendered
from flipproof.report.wording import wording

_SETTINGS = {
    "data": "data",
    "data_sha256": "hash of the data",
    "part": "part",
    "model": "model",
    "model_sha256": "hash of the model",
    "features": "node features",
}


def report_page(runs: Sequence[CertifiedRun], *, figures: Sequence[str] = ()) -> str:
    """The page of at least one run; ``figures`` are the names of the figures written beside it."""
    style, script = asset("page.css") + asset("report.css"), asset("report.js")
    tests = paired(runs) if len(runs) > 1 else []
    return rendered(
        "report.html",
        runs=runs,
        facts=[_facts(run) for run in runs],
        several_data=dict.fromkeys(run.settings.data for run in runs)
        if len({run.data_key for run in runs}) > 1
        else (),
        several_parts=len({tuple(run.graphs) for run in runs}) > 1,
        comparison=_comparison(runs),
        tests=tests,
        tests_table=_tests(tests),
        made=_made(runs),
        figures=figures,
        data=script_data(runs),
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        version=__version__,
        percent=percent,
        flips=_flips,
    )


def _flips(count: int) -> str:
    return "any single flip" if count == 1 else f"any {count} flips"


def _facts(run: CertifiedRun) -> dict[str, Any]:
    """The numbers of a run's headline."""
    total = len(run.rows)
    counts = run.curve(top=max(curve_range([run]), 3)).certified
    against_all = max(r for r, count in enumerate(counts) if r == 0 or 2 * count >= total)
    alone = []
    for attacker, what in (("adds_radius", "add"), ("removes_radius", "remove")):
        kept = run.curve(attacker=attacker, top=64).certified
        reach = max([r for r, count in enumerate(kept) if r and 2 * count >= total], default=0)
        if reach > against_all and not run.symmetric:
            alone.append((what, kept[reach], reach))
    right = run.majority if run.line is None else run.line
    return {
        "total": total,
        "trait": wording(run.settings.defence["name"]).trait,
        "counts": counts,
        # the most flips that half of the graphs withstand, at least two
        "further": max([r for r, count in enumerate(counts) if r >= 2 and 2 * count >= total] or [2]),
        "alone": alone,
        "compared_with": right,
        "lead": None if right is None else run.lead_over(right),
        "unlabelled": sum(row["label"] is None for row in run.rows),
        "tiles": _tiles(run),
        "bar": _bar(run),
        "beside": _beside(run),
    }


def _tiles(run: CertifiedRun) -> list[tuple[str, str, str]]:
    curve = run.curve(top=3)
    tiles = [(share_text(curve, 0), "answered right")]
    if not run.edge_blind:
        tiles += [(share_text(curve, r), f"right under {_flips(r)}") for r in (1, 2, 3)]
        tiles.append((_average(run), "flips withstood on average (wrong answers count 0)"))
        if run.line is not None:
            line = share_text(Curve("edge-blind", (run.line,), len(run.rows)), 0)
            tiles.append((line, "right for a network that ignores edges, under any flips"))
    parts = ((shown.partition(" "), what) for shown, what in tiles)
    return [(value, interval, what) for (value, _, interval), what in parts]


def _bar(run: CertifiedRun) -> list[dict[str, Any]]:
    """All graphs as one bar, by the number of flips that they withstand; groups without a graph are left out."""
    abstained, radii = run.abstained, run.right_radii()
    groups = [("wrong", int((radii < 0).sum()) - abstained, "no"), ("abstained", abstained, "none")]
    if run.edge_blind:
        groups.insert(0, ("right under any flips", int((radii >= 0).sum()), "r3"))
    else:
        names = ["right, 0 flips", "1 flip", "2 flips"]
        few = [(name, int((radii == r).sum()), f"r{r}") for r, name in enumerate(names)]
        groups = [("3 or more flips", int((radii >= 3).sum()), "r3"), *few[::-1], *groups]
    x, bars = 0.0, []
    for name, count, kind in groups:
        if count:
            width = 100 * count / len(run.rows)
            bars.append({"name": name, "count": count, "kind": kind, "x": f"{x:.3f}", "width": f"{width:.3f}"})
            x += width
    return bars


def _beside(run: CertifiedRun) -> dict[str, Any] | None:
    """What is certified beside changes of nodes, where this was asked."""
    if run.nodes is None:
        return None
    number = "one node" if run.nodes == 1 else f"up to {run.nodes} nodes"
    rows = [["right although", "no flip", *(_flips(r) for r in (1, 2, 3))]]
    for change in NODE_CHANGES:
        curve = Curve.of(change, run.right_beside(change), 3)
        rows.append([f"{number} {change}", *(share_text(curve, r) for r in range(4))])
    return {"number": number, "rows": rows}


def _comparison(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    rows = [
        ["run", "graphs", "method", "right", "any 1 flip", "any 2", "any 3", "any 5", "average radius", "abstained"]
    ]
    for run in runs:
        curve = run.curve(top=5)
        shares = [share_text(curve, r) for r in (0, 1, 2, 3, 5)]
        average = "unlimited" if run.edge_blind else _average(run)
        rows.append([run.name, str(len(run.rows)), run.method, *shares, average, str(run.abstained)])
    return rows


def _tests(tests: Sequence[PairedTest]) -> list[list[str]]:
    rows = [["compared with", "flips", "difference", "only the first", "only the other", "p", "p (Holm)"]]
    for test in tests:
        difference = f"{100 * test.difference:+.0f} points" if test.difference else "none"
        chances = [f"{value:.3f}" if value >= 0.001 else "<0.001" for value in (test.p_value, test.adjusted)]
        rows.append([test.second, str(test.radius), difference, str(test.only_first), str(test.only_second), *chances])
    return rows


def _average(run: CertifiedRun) -> str:
    interval = mean_radius_interval(run.right_radii())
    ends = "" if interval is None else f" ({interval[0]:.2f}–{interval[1]:.2f})"
    return f"{mean_radius(run.right_radii()):.2f}{ends}"


def _made(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    """How each run was made: its settings, and everything that its question says."""
    sampling = dict.fromkeys(key for run in runs for key in run.settings.question if key not in ("alpha", "method"))
    return [
        ["", *(run.name for run in runs)],
        *([what, *(_said(getattr(run.settings, key)) for run in runs)] for key, what in _SETTINGS.items()),
        ["defence", *(run.defence for run in runs)],
        ["method", *(run.method for run in runs)],
        ["alpha of each certificate", *(f"{run.alpha:g}" for run in runs)],
        *([key.replace("_", " "), *(_said(run.settings.question.get(key)) for run in runs)] for key in sampling),
    ]


def _said(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else "–" if value is None else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
