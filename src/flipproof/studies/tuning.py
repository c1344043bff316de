"""Choosing a network and a defence: what certifies most at the user's radius or budget, on validation graphs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import Curve, share_interval, shown_mean, shown_share
from flipproof.datasets.sources import DataSource
from flipproof.engines import cores
from flipproof.errors import InputError
from flipproof.files import write_json, write_text
from flipproof.progress import note
from flipproof.report.drawing import Panel
from flipproof.report.markdown import markdown_table
from flipproof.report.study_figures import Trial as Point
from flipproof.report.study_figures import trade_off_figure
from flipproof.runs.run_folder import written_run
from flipproof.runs.settings import StudySettings
from flipproof.studies.benchmark.protocol_file import checked_training
from flipproof.studies.candidate import Candidate, trainable_networks
from flipproof.studies.halving import Clock, Search, Tried, asked_of, halved, ladder_of, refuse_clean_edges, remarks_on

__all__ = ["Choice", "Target", "tune", "tuning_search", "typed_command"]

_SHOWN = 6  # curves in the figure
_FEWEST_RADII, _MOST_RADII = 4, 16  # that it shows beside 0


@dataclass(frozen=True)
class Target:
    """The attack to be withstood: any flips within a radius, or additions together with removals."""

    radius: int | None = None
    adds: int | None = None
    removes: int | None = None

    def __post_init__(self) -> None:
        if (self.adds is not None or self.removes is not None) == (self.radius is not None):
            raise InputError(
                "say which attack is to be withstood: either --radius (any flips), or --adds and --removes (for instance "
                "--radius 2)"
            )

    @property
    def budgets(self) -> tuple[tuple[int, int], ...]:
        """Additions and removals; empty for a radius."""
        return ((self.adds or 0, self.removes or 0),) if self.radius is None else ()

    @property
    def attack(self) -> int | tuple[int, int]:
        """Any so many flips, or (additions, removals)."""
        return (self.adds or 0, self.removes or 0) if self.radius is None else self.radius

    @property
    def words(self) -> str:
        """For tables."""
        if self.radius is not None:
            return f"{_flips(self.radius, 'flip')} withstood"
        return f"{_flips(self.adds or 0, 'addition')} and {_flips(self.removes or 0, 'removal')} withstood"


@dataclass(frozen=True, eq=False)
class Choice:
    """The best candidate: as plain JSON, as a table, in sentences; and the files that were written."""

    summary: dict[str, Any]
    table: list[list[str]]
    paths: list[Path]

    @property
    def verdict(self) -> list[str]:
        """What was chosen, and whether it is worth having."""
        best, floor, summary = self.summary["best"], self.summary["edge_blind_accuracy"], self.summary
        lines = [
            f"best: {best['model']} with {best['defence']}, "
            f"{_shown(best['certified_accuracy'], summary)} of {summary['validation_graphs']} validation graphs right with "
            f"{summary['target']}"
        ]
        if best["certified_accuracy"] <= floor:
            lines.append(
                f"a network that sees no edges is right on {_shown(floor, summary)} under any attack: no candidate beats it at "
                "this target (train longer, ask for less, or use flipproof train --model edge-blind)"
            )
        return lines


def tuning_search(
    source: DataSource,
    target: Target,
    *,
    networks: Sequence[str],
    training: Mapping[str, Any],
    candidates: Sequence[Candidate],
    asked: Mapping[str, Any],
    features: str | None = None,
    train_graphs: int | None = None,
    graphs: int | None = None,
    quiet: bool = True,
) -> Search:
    """What is to be tried; without candidates, what every defence finds worth trying against the attack.

    Candidates that cannot reach the target are left out, and named unless ``quiet``.
    """
    checked_training(training)
    known = trainable_networks()
    for name in networks:
        if name not in known:
            raise InputError(f"--model must be one of {', '.join(known)}; got {name!r} (give it once per network)")
    if not source.validation:
        raise InputError("--validation must be above 0: the choice is made on validation graphs (for instance 0.2)")
    given = dict(training)
    search = Search(
        source,
        target.attack,
        ladder_of(given.pop("epochs")),
        features,
        tuple(candidates),
        tuple(dict.fromkeys(networks)),
        given,
        asked,
        train_graphs,
        **({} if graphs is None else {"most": graphs}),
    )
    if not search.validation_indices():
        raise InputError("--validation holds no graph (ask for a larger share)")
    refuse_clean_edges(search)
    for sentence in remarks_on(search):
        note(sentence, quiet=quiet)
    return search


def tune(
    search: Search,
    target: Target,
    folder: Path,
    *,
    seconds: float = math.inf,
    workers: int | None = None,
    quiet: bool = True,
) -> Choice:
    """Search, rank what was tried, and write what came out. A folder in which this was begun is continued.

    Args:
        search: What :func:`tuning_search` gave.
        target: The attack to be withstood.
        folder: For everything that is made.
        seconds: Time for the search; trainings under way are finished.
        workers: Processes; by default one per core.
        quiet: Show no progress.
    """
    with written_run(folder, StudySettings("tune", asked_of(search))) as run:
        clock = Clock(seconds, searching=1.0)
        tried = halved(run, search, clock, workers=workers or cores(), quiet=quiet)
    ranked = _ranked(tried)
    if not ranked:
        raise InputError("no candidate was tried in the time given (give more of it with --time)")
    choice = Choice(_summary(ranked, tried, target, search, folder), _table(ranked, tried, target.words), [])
    stem = folder / "figures" / "trade-off"
    _draw(stem, ranked, tried, target, search)
    write_json(folder / "choice.json", choice.summary)
    write_text(folder / "page.md", _page(choice))
    return replace(choice, paths=[folder / "choice.json", folder / "page.md", stem.with_suffix(".png")])


def _ranked(tried: Sequence[Tried]) -> list[Tried]:
    """The best trial of every candidate, best first."""
    found: dict[str, Tried] = {}
    for one in sorted(tried, key=lambda one: one.rank, reverse=True):
        if not one.trial.candidate.defence.baseline:
            found.setdefault(one.trial.candidate.title, one)
    return list(found.values())


def _line(tried: Sequence[Tried]) -> float:
    return next(one.score for one in tried if one.trial.candidate.defence.edge_blind)


def _draw(stem: Path, ranked: Sequence[Tried], tried: Sequence[Tried], target: Target, search: Search) -> None:
    shown = ranked[:_SHOWN]
    top = min(max(_FEWEST_RADII, 1 + max(max(one.found["radii"]) for one in shown)), _MOST_RADII)
    curves = tuple(Curve.of(one.trial.candidate.title, np.array(one.found["radii"]), top) for one in shown)
    panel = Panel(f"{Path(search.source.data).name}: the best candidates", curves, _line(tried))
    points = [Point(one.trial.name, one.found["accuracy"], one.score) for one in ranked]
    trade_off_figure(stem, panel, points, target=target.words)


def _summary(
    ranked: Sequence[Tried], tried: Sequence[Tried], target: Target, search: Search, folder: Path
) -> dict[str, Any]:
    """The choice as plain JSON."""
    best = ranked[0]
    return {
        "data": search.source.data,
        "target": target.words,
        "validation_graphs": best.found["validation_graphs"],
        "best": {**_described(best), "certified_accuracy": round(best.score, 6), "interval": _ends(best)},
        # what chance alone leaves open: one standard error of a share of so many graphs
        "standard_error": round(best.error, 6),
        "edge_blind_accuracy": round(_line(tried), 6),
        "candidates": [
            {
                **_described(one),
                "certificate": one.found["certificate"],
                "accuracy": round(one.found["accuracy"], 6),
                "certified_accuracy": round(one.score, 6),
                "interval": _ends(one),
                "average_certified_radius": round(one.found["average_radius"], 6),
            }
            for one in ranked
        ],
        "trials": [one.summary() for one in tried],
        "next": _commands(best, search, folder),
    }


def _ends(one: Tried) -> list[float]:
    """The exact 95% interval of a candidate's score."""
    graphs = one.found["validation_graphs"]
    low, high = share_interval([round(one.score * graphs)], graphs)
    return [round(float(low[0]), 6), round(float(high[0]), 6)]


def _described(one: Tried) -> dict[str, Any]:
    candidate = one.trial.candidate
    return {"model": candidate.model, "defence": replace(candidate, network=None).title, "epochs": one.trial.epochs}


def _flips(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _commands(best: Tried, search: Search, folder: Path) -> list[str]:
    """Training on all but the test graphs with the settings that won, and certifying the test graphs, unseen so far."""
    candidate, model = best.trial.candidate, str(folder / "model")
    source = search.source
    given: dict[str, Any] = {
        "data": source.data,
        "root": source.root,
        "symmetrise": source.symmetrise,
        "model": candidate.model,
        "features": search.features,
    }
    given |= {key: value for key, value in search.training.items() if key not in candidate.training}
    given |= {"epochs": best.trial.epochs}
    given |= {"data_seed": source.seed, "split_seed": source.split_seed, "seed": source.split_seed}
    given |= {"test": source.test, "validation": 0, **candidate.arguments, "out": model}
    asked = {"model": model, **candidate.known(search.asked), "out": folder / "run"}
    return [typed_command("train", given), typed_command("certify", asked)]


def typed_command(name: str, given: Mapping[str, Any]) -> str:
    """A command as it is typed; flags that are off, and what was not given, are left out."""
    words = ["flipproof", name]
    for key, value in given.items():
        if value is not None and value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _shown(share: float, summary: Mapping[str, Any]) -> str:
    graphs = summary["validation_graphs"]
    return shown_share(share * graphs, graphs)


def _table(ranked: Sequence[Tried], tried: Sequence[Tried], target: str) -> list[list[str]]:
    rows = [["model", "defence", "epochs", "not attacked", target, "average radius"]]
    for one in (*ranked, *(one for one in tried if one.trial.candidate.defence.baseline)):
        kind, known, graphs = one.trial.candidate.defence, _described(one), one.found["validation_graphs"]
        rows.append(
            [
                known["model"],
                "-" if kind.edge_blind else known["defence"],
                str(one.trial.epochs) if kind.trains else "-",
                shown_share(one.found["accuracy"] * graphs, graphs),
                shown_share(one.score * graphs, graphs) if not kind.baseline or kind.edge_blind else "-",
                "all pairs" if kind.edge_blind else shown_mean(np.array(one.found["radii"])),
            ]
        )
    return rows


def _page(choice: Choice) -> str:
    summary = choice.summary
    lines = [f"# Settings for {Path(summary['data']).name}", "", *(f"- {line}" for line in choice.verdict), ""]
    lines += [
        *markdown_table(choice.table),
        "",
        "In brackets: 95% intervals, as for a random sample of graphs.",
        "",
        "![Trade-off](figures/trade-off.svg)",
        "",
        "Go on with:",
        "",
    ]
    return "\n".join([*lines, *(f"    {command}" for command in summary["next"]), ""])
