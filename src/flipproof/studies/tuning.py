"""Choosing a network and a defence: what certifies most at the user's radius or budget, on validation graphs."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.datasets.sources import DataSource
from flipproof.errors import InputError
from flipproof.files import write_json, write_text
from flipproof.report.drawing import Panel
from flipproof.report.markdown import markdown_table
from flipproof.report.study_figures import Trial, trade_off_figure
from flipproof.studies.benchmark.jobs import data_parts, finished_jobs
from flipproof.studies.benchmark.outcomes import DataOutcome, Series, Statistic, collect, shown_radius, write_outcomes
from flipproof.studies.benchmark.plan_file import Network, Plan, checked_training, trainable_networks
from flipproof.studies.candidate import Candidate, default_candidates

__all__ = ["Choice", "Target", "tune", "tuning_plan", "typed_command"]

_SHOWN = 6  # curves in the figure
_Ranked = Sequence[tuple[Series, Statistic]]


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
    def words(self) -> str:
        """For tables."""
        if self.radius is not None:
            return f"{_flips(self.radius, 'flip')} withstood"
        return f"{_flips(self.adds or 0, 'addition')} and {_flips(self.removes or 0, 'removal')} withstood"

    def share(self, series: Series) -> Statistic:
        """Share of graphs that are right and withstand it."""
        return series.withstood(0) if self.radius is None else series.accuracy(self.radius)


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
            f"best: {best['model']} with {best['defence']}, {best['certified_accuracy']:.3f} ± "
            f"{summary['standard_error']:.3f} of {summary['validation_graphs']} validation graphs right with "
            f"{summary['target']}"
        ]
        if best["certified_accuracy"] <= floor:
            lines.append(
                f"a network that sees no edges is right on {floor:.3f} under any attack: no candidate beats it at this target "
                "(train longer, ask for less, or use flipproof train --model edge-blind)"
            )
        return lines


def tuning_plan(
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
) -> Plan:
    """What is to be tried; without candidates, what every defence finds worth trying on the training graphs."""
    checked_training(training)
    known = trainable_networks()
    for name in networks:
        if name not in known:
            raise InputError(f"--model must be one of {', '.join(known)}; got {name!r} (give it once per network)")
    if not source.validation:
        raise InputError("--validation must be above 0: the choice is made on validation graphs (for instance 0.2)")
    plan = Plan(
        name=source.data,
        source=source,
        networks=tuple(Network(name, {}, training) for name in dict.fromkeys(networks)),
        candidates=tuple(candidates),
        asked=asked,
        splits=(source.split_seed,),
        features=features,
        train_graphs=train_graphs,
        test_graphs=graphs,
        budgets=target.budgets,
        part="validation",
    )
    if plan.candidates:
        return plan
    return replace(plan, candidates=default_candidates(data_parts(plan, source.split_seed).train))


def tune(plan: Plan, target: Target, folder: Path, *, workers: int | None = None, quiet: bool = True) -> Choice:
    """Try all candidates of the plan, rank them, and write what came out."""
    (data,) = collect(finished_jobs([plan], folder, "tune", workers=workers, quiet=quiet))
    ranked = _ranked(data, target)
    choice = Choice(_summary(data, ranked, target, plan, folder), _table(data, ranked, target.words), [])
    stem = folder / "figures" / "trade-off"
    _draw(stem, data, ranked, target)
    write_json(folder / "choice.json", choice.summary)
    write_text(folder / "page.md", _page(choice))
    written = [folder / "choice.json", folder / "page.md", stem.with_suffix(".png"), *write_outcomes([data], folder)]
    return replace(choice, paths=written)


def _ranked(data: DataOutcome, target: Target) -> _Ranked:
    """Candidates with their share at the target, best first; ties go to the more accurate, then to the larger average radius."""
    return sorted(
        ((series, target.share(series)) for series in data.defended),
        key=lambda pair: (pair[1].mean, pair[0].accuracy(0).mean, pair[0].average_radius().mean),
        reverse=True,
    )


def _draw(stem: Path, data: DataOutcome, ranked: _Ranked, target: Target) -> None:
    best = [series for series, _ in ranked[:_SHOWN]]
    curves = tuple(series.curve(series.name, shown_radius(best)) for series in best)
    panel = Panel(f"{data.title}: the best candidates ({data.methods})", curves, data.edge_blind.accuracy(0).mean)
    trials = [Trial(series.name, series.accuracy(0).mean, share.mean) for series, share in ranked]
    trade_off_figure(stem, panel, trials, target=target.words)


def _summary(data: DataOutcome, ranked: _Ranked, target: Target, plan: Plan, folder: Path) -> dict[str, Any]:
    """The choice as plain JSON."""
    best, share = ranked[0]
    graphs = best.splits[0].graphs
    return {
        "data": plan.name,
        "target": target.words,
        "validation_graphs": graphs,
        "best": {"model": best.network, "defence": best.candidate.title, "certified_accuracy": round(share.mean, 6)},
        # what chance alone leaves open: one standard error of a share of so many graphs
        "standard_error": round(float(np.sqrt(share.mean * (1 - share.mean) / graphs)), 6),
        "edge_blind_accuracy": round(data.edge_blind.accuracy(0).mean, 6),
        "candidates": [
            {
                "model": series.network,
                "defence": series.candidate.title,
                "certificate": series.method,
                "accuracy": round(series.accuracy(0).mean, 6),
                "certified_accuracy": round(value.mean, 6),
                "average_certified_radius": round(series.average_radius().mean, 6),
            }
            for series, value in ranked
        ],
        "next": _commands(best, plan, folder),
    }


def _flips(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _commands(best: Series, plan: Plan, folder: Path) -> list[str]:
    """Training on all but the test graphs with the settings that won, and certifying the test graphs, unseen so far."""
    source, candidate, model = plan.source, best.candidate, str(folder / "model")
    given: dict[str, Any] = {"data": source.data, "root": source.root, "model": best.network, "features": plan.features}
    given |= plan.networks[0].training
    given |= {"data_seed": source.seed, "split_seed": source.split_seed, "seed": source.split_seed}
    given |= {"test": source.test, "validation": 0, **candidate.arguments, "out": model}
    asked = {"model": model, **candidate.known(plan.asked), "out": folder / "run"}
    return [typed_command("train", given), typed_command("certify", asked)]


def typed_command(name: str, given: Mapping[str, Any]) -> str:
    """A command as it is typed; flags that are off, and what was not given, are left out."""
    words = ["flipproof", name]
    for key, value in given.items():
        if value is not None and value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return shlex.join(words)


def _table(data: DataOutcome, ranked: _Ranked, target: str) -> list[list[str]]:
    rows = [["model", "defence", "not attacked", target, "average radius"]]
    rows += [
        [
            series.network,
            series.candidate.title,
            f"{series.accuracy(0).mean:.3f}",
            f"{share.mean:.3f}",
            f"{series.average_radius().mean:.2f}",
        ]
        for series, share in ranked
    ]
    floor = f"{data.edge_blind.accuracy(0).mean:.3f}"
    clean = [[series.network, "none (clean)", f"{series.accuracy(0).mean:.3f}", "-", "-"] for series in data.clean]
    return [*rows, ["edge-blind", "-", floor, floor, "all pairs"], *clean]


def _page(choice: Choice) -> str:
    summary = choice.summary
    lines = [f"# Settings for {Path(summary['data']).name}", "", *(f"- {line}" for line in choice.verdict), ""]
    lines += [*markdown_table(choice.table), "", "![Trade-off](figures/trade-off.svg)", "", "Go on with:", ""]
    return "\n".join([*lines, *(f"    {command}" for command in summary["next"]), ""])
