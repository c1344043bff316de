"""The report as one HTML file: headline in words, interactive curves, a table of all graphs, each graph on a click.

Everything is inside the file, and its content security policy allows no request and no script but its own. What users have
named (runs, data, classes, graphs) reaches the page escaped, as text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from flipproof import __version__
from flipproof.certificates.metrics import Curve, mean_radius, mean_radius_interval
from flipproof.graphs import NODE_CHANGES
from flipproof.report.content import CertifiedRun, curve_range, paired, percent, share_text
from flipproof.report.html import asset, embedded_json, html_table, policy
from flipproof.report.script_data import script_data
from flipproof.report.wording import wording

__all__ = ["report_page"]

_SETTINGS = {
    "data": "data",
    "data_sha256": "hash of the data",
    "part": "part",
    "model": "model",
    "model_sha256": "hash of the model",
    "features": "node features",
}
_NAMED = 5  # graphs that a warning names


def report_page(runs: Sequence[CertifiedRun], *, figures: Sequence[str] = ()) -> str:
    """The page of at least one run; ``figures`` are the names of the figures written beside it."""
    style, script = asset("page.css") + asset("report.css"), asset("report.js")
    one = len(runs) == 1
    heading = "How many edge flips do the predictions withstand?" if one else f"{len(runs)} runs compared"
    parts = {
        "title": html.escape(f"{runs[0].name if one else f'{len(runs)} runs'}: robustness report"),
        "policy": html.escape(policy(style, script)),
        "style": style,
        "script": script,
        "heading": heading,
        "subtitle": html.escape(_subtitle(runs[0]) if one else " · ".join(run.name for run in runs)),
        "headline": _headline(runs),
        "made": html_table(_made(runs)),
        "files": _files(figures),
        "version": html.escape(__version__),
        "data": embedded_json(script_data(runs)),
    }
    return re.sub(r"<!--(\w+)-->", lambda match: parts[match[1]], asset("report.html"))


def _subtitle(run: CertifiedRun) -> str:
    return f"{run.settings.model} on {run.what}, {run.defence}"


def _headline(runs: Sequence[CertifiedRun]) -> str:
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in _notes(runs))
    parts = [f'<div class="note">{notes}</div>'] if notes else []
    if len(runs) == 1:
        return "".join(
            [*parts, f'<p class="lead">{_sentences(runs[0])}</p>', _tiles(runs[0]), _bar(runs[0]), _beside(runs[0])]
        )
    cards = "".join(
        f'<article class="card"><h3>{_swatch(f"run{number % 6} fill")}{html.escape(run.name)}</h3>'
        f'<p class="soft">{html.escape(_subtitle(run))}</p><p>{_sentences(run)}</p>{_bar(run)}{_beside(run)}</article>'
        for number, run in enumerate(runs)
    )
    return "".join([*parts, f'<div class="cards">{cards}</div>', html_table(_comparison(runs)), _tests(runs)])


def _notes(runs: Sequence[CertifiedRun]) -> list[str]:
    notes = []
    if len({run.data_key for run in runs}) > 1:
        names = ", ".join(dict.fromkeys(run.settings.data for run in runs))
        notes.append(
            f"These runs certify different data ({names}), so their curves cannot be compared. In the table, a graph has entries "
            "only for the runs on its own data."
        )
    elif len({tuple(run.graphs) for run in runs}) > 1:
        notes.append("These runs certify different parts of the same data. Each share is of the run's own graphs.")
    for run in runs:
        if run.listed is not None:
            notes.append(
                f"{run.name} has {len(run.rows):,} graphs. Figures and sentences are about all of them; the table lists "
                f"{len(run.listed):,}, some of every class and outcome. flipproof export writes a row for each."
            )
        if run.only_class is not None:
            notes.append(
                f"{run.name}: every answer is {run.only_class}. The model tells no classes apart, and its certificates say "
                "nothing."
            )
        unlabelled = sum(row["label"] is None for row in run.rows)
        if unlabelled:
            notes.append(f"{run.name}: {_graphs(unlabelled)} without a label; such a graph never counts as right.")
        if run.broken:
            named = [run.graphs[index].name or f"graph {index}" for index in run.broken[:_NAMED]]
            more = ["and others"] if len(run.broken) > _NAMED else []
            why = (
                "Either can happen, each with its probability alpha."
                if run.alpha
                else "Nothing was sampled, so this is a fault of flipproof or of the model. Do not rely on this run."
            )
            notes.append(
                f"{run.name}: attacks succeeded within the certified radius of {_graphs(len(run.broken))} "
                f"({', '.join(named + more)}). A certificate or an attack is wrong. {why}"
            )
    return notes


def _graphs(count: int) -> str:
    return f"{count} graph{'s' * (count != 1)}"


def _flips(count: int) -> str:
    return "any single flip" if count == 1 else f"any {count} flips"


def _of(count: int, total: int) -> str:
    return f"{count} of {total} graphs ({percent(count, total)})"


def _sentences(run: CertifiedRun) -> str:
    """What the run shows, for a reader who knows nothing about the defence; HTML."""
    total, trait = len(run.rows), html.escape(wording(run.settings.defence["name"]).trait)
    counts = run.curve(top=max(curve_range([run]), 3)).certified
    strong = f"<strong>{_of(counts[0], total)}</strong>"
    if run.edge_blind:
        return (
            f"This model ignores edges. It is right on {strong}, and no attack on edges can change any of its answers. A model "
            "that uses edges has to do better than this."
        )
    sentences = [*_against_line(run), f"The {trait} classifier is right on {strong}."]
    if counts[1]:
        further = max([r for r, count in enumerate(counts) if r >= 2 and 2 * count >= total] or [2])
        more = f"; for {counts[further]} ({percent(counts[further], total)}), under {_flips(further)}"
        sentences.append(
            f"For <strong>{counts[1]} ({percent(counts[1], total)})</strong>, the answer is right and proven to stay so under "
            f"{_flips(1)} of an edge{more if counts[further] else ''}."
        )
    else:
        sentences.append("No right answer is proven to withstand an arbitrary single flip.")
    if not run.symmetric:
        against_all = max(r for r, count in enumerate(counts) if r == 0 or 2 * count >= total)
        for attacker, what in (("adds_radius", "add"), ("removes_radius", "remove")):
            alone = run.curve(attacker=attacker, top=64).certified
            reach = max([r for r, count in enumerate(alone) if r and 2 * count >= total], default=0)
            if reach > against_all:
                sentences.append(
                    f"Against an attacker who can only {what} edges, {alone[reach]} ({percent(alone[reach], total)}) are proven "
                    f"to withstand {reach}."
                )
    if run.abstained:
        sentences.append(f"It abstains on {_graphs(run.abstained)}, where the evidence does not settle the answer.")
    if run.alpha:
        odds = f"1 in {round(1 / run.alpha):,}" if run.alpha <= 0.5 else "more often than not"
        sentences.append(f"Each proof is wrong with a probability of at most {run.alpha:g} ({odds}).")
    else:
        sentences.append("These proofs hold with certainty: nothing was sampled.")
    return " ".join(sentences)


def _against_line(run: CertifiedRun) -> list[str]:
    """How the run compares with a network that ignores edges; where none is known, with the most frequent class."""
    if run.line is not None:
        return [_compared(run, run.line, "a network that ignores edges", "that network")]
    if all(row["label"] is None for row in run.rows):
        return ["No label is known, so this cannot be compared with a network that ignores edges."]
    why = run.no_line or "no training graphs are known (report --edge-blind RUN adds a run of an edge-blind model)"
    sentences = [f"<strong>This was not compared with a network that ignores edges</strong>: {html.escape(why)}."]
    if run.majority is not None:
        sentences.append(_compared(run, run.majority, "always naming the most frequent class", "that answer"))
    return sentences


def _compared(run: CertifiedRun, right: int, what: str, it: str) -> str:
    line = f"which is right on {_of(right, len(run.rows))} whatever an attacker does to the edges"
    lead = run.lead_over(right)
    if lead < 0:
        return f"<strong>This is no better than {what}</strong>, {line}."
    if lead == 0:
        return (
            f"<strong>This beats {what} only as long as nobody attacks</strong>: {it}, {line}, withstands a single flip on at "
            "least as many graphs."
        )
    return f"<strong>This beats {what} under {_flips(lead)}</strong>: more graphs are certified than for {it}, {line}."


def _tiles(run: CertifiedRun) -> str:
    total = len(run.rows)
    curve = run.curve(top=3)
    tiles = [(share_text(curve, 0), "answered right")]
    if not run.edge_blind:
        tiles += [(share_text(curve, r), f"right under {_flips(r)}") for r in (1, 2, 3)]
        tiles.append((_average(run), "flips withstood on average (wrong answers count 0)"))
        if run.line is not None:
            line = share_text(Curve("edge-blind", (run.line,), total), 0)
            tiles.append((line, "right for a network that ignores edges, under any flips"))
    cells = "".join(
        f"<li><b>{value}</b> <small>{interval}</small> <span>{what}</span></li>"
        for (value, _, interval), what in ((shown.partition(" "), what) for shown, what in tiles)
    )
    return f'<ul class="tiles">{cells}</ul><p class="soft">In brackets: 95% intervals, as for a random sample of graphs.</p>'


def _bar(run: CertifiedRun) -> str:
    """All graphs as one bar, by the number of flips that they withstand."""
    total, abstained, radii = len(run.rows), run.abstained, run.right_radii()
    groups = [("wrong", int((radii < 0).sum()) - abstained, "no"), ("abstained", abstained, "none")]
    if run.edge_blind:
        groups.insert(0, ("right under any flips", int((radii >= 0).sum()), "r3"))
    else:
        names = ["right, 0 flips", "1 flip", "2 flips"]
        some = [(name, int((radii == r).sum()), f"r{r}") for r, name in enumerate(names)]
        groups = [("3 or more flips", int((radii >= 3).sum()), "r3"), *some[::-1], *groups]
    x, rects, key = 0.0, [], []
    for name, count, kind in groups:
        if count:
            width = 100 * count / total
            rects.append(f'<rect class="{kind}" x="{x:.3f}" width="{width:.3f}" height="6"/>')
            key.append(f"<li>{_swatch(kind)}{name}: {count}</li>")
            x += width
    return (
        f'<figure class="bar"><svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{"".join(rects)}</svg>'
        f'<figcaption><ul class="key"><li>Graphs by flips withstood:</li>{"".join(key)}</ul></figcaption></figure>'
    )


def _beside(run: CertifiedRun) -> str:
    """What is certified beside changes of nodes, where this was asked; HTML."""
    if run.nodes is None:
        return ""
    number = "one node" if run.nodes == 1 else f"up to {run.nodes} nodes"
    rows = [["right although", "no flip", *(_flips(r) for r in (1, 2, 3))]]
    for change in NODE_CHANGES:
        curve = Curve.of(change, run.right_beside(change), 3)
        rows.append([f"{number} {change}", *(share_text(curve, r) for r in range(4))])
    return f"<p>Beyond edges: graphs whose answer stays right when {number} can change, too.</p>{html_table(rows)}"


def _swatch(classes: str) -> str:
    square = f'<rect class="{classes}" width="14" height="14" rx="3"/>'
    return f'<svg class="swatch" aria-hidden="true" viewBox="0 0 14 14">{square}</svg>'


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


def _average(run: CertifiedRun) -> str:
    interval = mean_radius_interval(run.right_radii())
    ends = "" if interval is None else f" ({interval[0]:.2f}–{interval[1]:.2f})"
    return f"{mean_radius(run.right_radii()):.2f}{ends}"


def _tests(runs: Sequence[CertifiedRun]) -> str:
    """What can be said about differences between the first run and the others; HTML."""
    found = paired(runs)
    if not found:
        return ""
    rows = [["compared with", "flips", "difference", "only the first", "only the other", "p", "p (Holm)"]]
    rows += [
        [
            test.second,
            str(test.radius),
            f"{100 * test.difference:+.0f} points" if test.difference else "none",
            str(test.only_first),
            str(test.only_second),
            *(f"{value:.3f}" if value >= 0.001 else "<0.001" for value in (test.p_value, test.adjusted)),
        ]
        for test in found
    ]
    first = html.escape(found[0].first)
    return (
        '<p class="soft">In brackets: 95% intervals (Clopper-Pearson; for the average radius Student\'s), as for a random sample '
        f"of graphs.</p><details><summary>Are the differences more than chance? {first} compared with the others</summary>"
        f"<p>The same {found[0].graphs} graphs, compared one by one: right under any so many flips with {first} only, or with "
        "the other only. The exact McNemar test asks how likely so large a difference is if neither were better. The last column "
        f"is corrected for all {found[0].comparisons} comparisons (Holm). The test says nothing about other training runs.</p>"
        f"{html_table(rows)}</details>"
    )


def _made(runs: Sequence[CertifiedRun]) -> list[list[str]]:
    """How each run was made: its settings, and everything that its question says."""
    asked = dict.fromkeys(key for run in runs for key in run.settings.question if key not in ("alpha", "method"))
    return [
        ["", *(run.name for run in runs)],
        *([what, *(_said(getattr(run.settings, key)) for run in runs)] for key, what in _SETTINGS.items()),
        ["defence", *(run.defence for run in runs)],
        ["method", *(run.method for run in runs)],
        ["alpha of each certificate", *(f"{run.alpha:g}" for run in runs)],
        *([key.replace("_", " "), *(_said(run.settings.question.get(key)) for run in runs)] for key in asked),
    ]


def _said(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else "–" if value is None else "no"
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return text if len(text) <= 40 else f"{text[:12]}…"


def _files(figures: Sequence[str]) -> str:
    if not figures:
        return ""
    names = ", ".join(html.escape(name) for name in figures)
    return f"<p>For print, beside this file as SVG, PDF and PNG with their numbers as CSV: {names}.</p>"
