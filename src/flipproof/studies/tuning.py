"""Choosing a network and a defence: what certifies most against the attack to withstand, on validation graphs."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import Curve, share_interval, shown_mean, shown_share
from flipproof.engines import cores
from flipproof.errors import InputError
from flipproof.files import write_json, write_text
from flipproof.report.drawing import Panel
from flipproof.report.study_figures import trade_off_figure
from flipproof.report.templates import markdown_table, rendered
from flipproof.runs.run_folder import written_run
from flipproof.runs.settings import StudySettings
from flipproof.studies.candidate import Candidate
from flipproof.studies.trials import Clock, Experiment, Search, TrialResult, defended

_SHOWN = 6  # curves in the figure
_FEWEST_RADII, _MOST_RADII = 4, 16  # that it shows beside 0


@dataclass(frozen=True, eq=False)
class Choice:
    """The best candidate: as plain JSON, as a table, in sentences; and the files that were written."""

    summary: dict[str, Any]
    table: list[list[str]]
    paths: list[Path]

    @property
    def verdict(self) -> list[str]:
        """What was chosen, and whether it is worth having."""
        best, floor, graphs = (
            self.summary["best"],
            self.summary["edge_blind_accuracy"],
            self.summary["validation_graphs"],
        )
        score = best["certified_accuracy"]
        lines = [
            f"best: {best['model']} with {best['defence']}, {shown_share(score * graphs, graphs)} of {graphs} validation "
            f"graphs right with {self.summary['target']}"
        ]
        if score <= floor:
            lines.append(
                f"a network that sees no edges is right on {shown_share(floor * graphs, graphs)} under any attack: no candidate "
                "beats it at this target (train longer, ask for less, or use flipproof train --model edge-blind)"
            )
        return lines


def tune(
    experiment: Experiment,
    folder: Path,
    *,
    seconds: float = math.inf,
    workers: int | None = None,
    quiet: bool = True,
) -> Choice:
    """Search, rank what was tried, and write what came out. A folder in which this was begun is continued.

    Args:
        experiment: Prepared: with the candidates.
        folder: For everything that is made.
        seconds: Time for the search; trainings under way are finished.
        workers: Processes; by default one per core.
        quiet: Show no progress.
    """
    with written_run(folder, StudySettings("tune", experiment.to_dict())) as run:
        results = Search(run, experiment, Clock(seconds, searching=1.0), workers or cores(), quiet).results()
    best_trials: dict[str, TrialResult] = {}
    for one in sorted(defended(results), key=lambda one: one.rank, reverse=True):
        best_trials.setdefault(one.candidate.title, one)
    ranked = list(best_trials.values())
    if not ranked:
        raise InputError("no candidate was tried in the time given (give more of it with --time)")
    summary = _summary(ranked, results, experiment, folder)
    stem = folder / "figures" / "trade-off"
    choice = Choice(
        summary,
        _table(ranked, results, summary["target"]),
        [folder / "choice.json", folder / "page.md", stem.with_suffix(".png")],
    )
    _draw(stem, ranked, summary)
    write_json(folder / "choice.json", summary)
    page = rendered("choice.md", name=Path(summary["data"]).name, choice=choice, table=markdown_table(choice.table))
    write_text(folder / "page.md", page)
    return choice


def _draw(stem: Path, ranked: Sequence[TrialResult], summary: Mapping[str, Any]) -> None:
    shown = ranked[:_SHOWN]
    top = min(max(_FEWEST_RADII, 1 + max(max(one.content["radii"]) for one in shown)), _MOST_RADII)
    curves = tuple(Curve.of(one.candidate.title, np.array(one.content["radii"]), top) for one in shown)
    panel = Panel(f"{Path(summary['data']).name}: the best candidates", curves, summary["edge_blind_accuracy"])
    points = [(one.trial.name, one.content["accuracy"], one.score) for one in ranked]
    trade_off_figure(stem, panel, points, target=summary["target"])


def _summary(
    ranked: Sequence[TrialResult], results: Sequence[TrialResult], experiment: Experiment, folder: Path
) -> dict[str, Any]:
    """The choice as plain JSON."""
    assert experiment.threat is not None
    best = ranked[0]
    model = folder / "model"
    return {
        "data": experiment.source.data,
        "target": experiment.threat.words,
        "validation_graphs": best.graphs,
        "best": {**_described(best), "certified_accuracy": round(best.score, 6), "interval": _ends(best)},
        # what chance alone leaves open: one standard error of a share of that many graphs
        "standard_error": round(best.error, 6),
        "edge_blind_accuracy": round(next(one.score for one in results if one.candidate.defence.edge_blind), 6),
        "candidates": [
            {
                **_described(one),
                "certificate": one.content["certificate"],
                "accuracy": round(one.content["accuracy"], 6),
                "certified_accuracy": round(one.score, 6),
                "interval": _ends(one),
                "average_certified_radius": round(one.content["average_radius"], 6),
            }
            for one in ranked
        ],
        "trials": [one.summary() for one in results],
        "next": [
            training_command(
                experiment,
                best.candidate,
                {"model": best.candidate.model, "features": experiment.features},
                {key: value for key, value in experiment.training.items() if key not in best.candidate.training}
                | {"epochs": best.trial.epochs},
                model,
            ),
            typed_command(
                "certify", {"model": model, **best.candidate.known(experiment.sampling), "out": folder / "run"}
            ),
        ],
    }


def _ends(one: TrialResult) -> list[float]:
    """The exact 95% interval of a candidate's score."""
    low, high = share_interval([round(one.score * one.graphs)], one.graphs)
    return [round(float(low[0]), 6), round(float(high[0]), 6)]


def _described(one: TrialResult) -> dict[str, Any]:
    title = replace(one.candidate, network=None).title
    return {"model": one.candidate.model, "defence": title, "epochs": one.trial.epochs}


def training_command(
    experiment: Experiment, candidate: Candidate, network: Mapping[str, Any], training: Mapping[str, Any], out: Any
) -> str:
    """Training a candidate on all but the test graphs, as it is typed."""
    source = experiment.source
    options = {"data": source.data, "root": source.root, "symmetrise": source.symmetrise, **network, **training}
    options |= {"data_seed": source.seed, "split_seed": source.split_seed, "seed": source.split_seed}
    options |= {"test": source.test, "validation": 0} | ({} if candidate.defence.edge_blind else candidate.arguments)
    return typed_command("train", {**options, "out": out})


def typed_command(name: str, options: Mapping[str, Any]) -> str:
    """A command as it is typed; flags that are off, and what was not given, are left out."""
    words = ["flipproof", name]
    for key, value in options.items():
        if value is not None and value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _table(ranked: Sequence[TrialResult], results: Sequence[TrialResult], target: str) -> list[list[str]]:
    rows = [["model", "defence", "epochs", "not attacked", target, "average radius"]]
    for one in (*ranked, *(one for one in results if one.candidate.defence.baseline)):
        kind = one.candidate.defence
        rows.append(
            [
                one.candidate.model,
                "-" if kind.edge_blind else _described(one)["defence"],
                str(one.trial.epochs) if kind.trains else "-",
                shown_share(one.content["accuracy"] * one.graphs, one.graphs),
                shown_share(one.score * one.graphs, one.graphs) if not kind.baseline or kind.edge_blind else "-",
                "all pairs" if kind.edge_blind else shown_mean(np.array(one.content["radii"])),
            ]
        )
    return rows
