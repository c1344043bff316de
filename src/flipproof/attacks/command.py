"""``flipproof attack``: the smallest attack found on every graph, beside its certificate.

RUN/run.json               what was asked; written first
RUN/attacks/00000.json     one file a graph; a graph with a file is done
RUN/attacks.csv, RUN/summary.json, RUN/figures/     derived, can be made again
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.attacks.figures import accuracy_figure, graphs_figure
from flipproof.attacks.result import AttackResult, robust_accuracy
from flipproof.attacks.search import Options
from flipproof.attacks.strongest import by_name, strongest
from flipproof.certificates.bounds import checked_alpha
from flipproof.classifiers import Classifier, as_classifier
from flipproof.commands.progress import OutputOptions, note, progress
from flipproof.commands.sources import (
    LoadedModel,
    fingerprint,
    load_features,
    load_model,
    load_noise,
    model_data,
    part_indices,
)
from flipproof.commands.voting import chosen_defence, load_groups
from flipproof.engines import cores, local_engine, one_thread
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise.groups import EdgeGroups
from flipproof.noise import EdgeNoise, checked_seed
from flipproof.report.figures import Curve
from flipproof.runs.folder import Run, locked, write_json, write_text
from flipproof.defences.asking import Engine, ThisProcess
from flipproof.defences.smoothing import SmoothedClassifier
from flipproof.runs.table import read_table
from flipproof.certificates.sampled_votes import checked_samples
from flipproof.defences.voting import VotingClassifier

__all__ = ["AttackOptions", "Targets", "attack", "attack_graphs"]

_DRAWN = 8
_COLUMNS = ("graph", "name", "label", "target", "success", "size", "flips", "margin_before", "margin_after")
_WHO = {
    "undefended": "clean model under attack",
    "base": "base model under attack",
    "smoothed": "smoothed under attack (upper bound)",
    "voting": "voting under attack (upper bound)",
}


@dataclass(frozen=True)
class AttackOptions(OutputOptions):
    """What ``flipproof attack`` was asked for; ``None`` where the model folder knows.

    ``undefended`` and ``edge_blind`` are folders of other models to compare with, ``certificates`` a run of
    ``flipproof certify`` with the same model and noise.
    """

    model: str
    out: Path
    budget: int = 5
    attacks: tuple[str, ...] = ("greedy",)
    data: str | None = None
    root: str | None = None
    download: bool = False
    keep: float | None = None
    add: float | None = None
    remove: float | None = None
    groups: int | None = None
    features: str | None = None
    part: str = "test"
    graphs: int | None = None
    data_seed: int | None = None
    split_seed: int | None = None
    undefended: str | None = None
    edge_blind: str | None = None
    certificates: Path | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    samples: int = 128
    confirm_samples: int = 10_000
    alpha: float = 0.001
    seed: int = 0
    classes: int | None = None
    workers: int | None = None


@dataclass(frozen=True, eq=False)
class Targets:
    """What is attacked: classifiers by role (``undefended``, ``base``, ``smoothed``, ``voting``), and one that cannot be."""

    attacked: Mapping[str, Classifier | SmoothedClassifier | VotingClassifier]
    edge_blind: Classifier | None = None


def attack(options: AttackOptions) -> int:
    """Attack what is not attacked yet, write tables and figures, print the summary. The exit code."""
    _refuse_early(options)
    loaded = load_model(options.model)
    source, data = model_data(
        loaded.saved,
        data=options.data,
        root=options.root,
        download=options.download,
        data_seed=options.data_seed,
        split_seed=options.split_seed,
    )
    indices = part_indices(source.split(data), options.part, options.graphs)
    graphs = {index: data[index] for index in indices}
    others = {name: load_model(name) for name in (options.undefended, options.edge_blind) if name is not None}
    targets, noise, groups = _targets(loaded, others, options, options.classes or data.num_classes)
    settings = {
        "command": "attack",
        "data": data.name,
        "data_sha256": fingerprint(data),
        "graphs": indices,
        "model_sha256": loaded.identity,
        "undefended_sha256": None if options.undefended is None else others[options.undefended].identity,
        "noise": None if noise is None else [noise.add_threshold, noise.remove_threshold],
        "groups": None if groups is None else groups.count,
        "features": options.features,
        "budget": options.budget,
        "attacks": list(options.attacks),
        "constraints": dict(options.constraints),
        "samples": options.samples,
        "confirm_samples": options.confirm_samples,
        "alpha": options.alpha,
        "seed": options.seed,
    }
    radii = None if options.certificates is None else _certified(options.certificates, settings)
    search: Options = {
        "samples": options.samples,
        "confirm_samples": options.confirm_samples,
        "alpha": options.alpha,
        "seed": options.seed,
        **options.constraints,  # type: ignore[typeddict-item]
    }
    try:
        with locked(options.out):
            summary = attack_graphs(
                Run(options.out, settings),
                targets,
                graphs,
                budget=options.budget,
                attacks=options.attacks,
                options=search,
                radii=radii,
                engine=_engine(loaded, options, len(graphs)),
                quiet=options.silent,
            )
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}")
        return 130
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        _print_summary(summary)
    return 0


def _refuse_early(options: AttackOptions) -> None:
    """What can be told before anything is read or written."""
    for name in options.attacks:
        by_name(name)
    checked_samples(options.samples)
    checked_samples(options.confirm_samples, "confirm_samples")
    checked_alpha(options.alpha)
    checked_seed(options.seed)


def attack_graphs(
    run: Run,
    targets: Targets,
    graphs: Mapping[int, Graph],
    *,
    budget: int,
    attacks: Sequence[str] = ("greedy",),
    options: Options | None = None,
    radii: Mapping[int, tuple[int | None, int]] | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Attack labelled graphs and write everything that a run of attacks holds; returns the summary.

    Args:
        run: Where; graphs that are done are not attacked again.
        targets: What is attacked.
        graphs: By position in the data set, with labels.
        budget: Most flips.
        attacks: Names, as for :func:`flipproof.attacks.strongest`.
        options: Of the attacks.
        radii: Certified label and radius of the defended classifier by graph, where known.
        engine: Where graphs are attacked; by default in this process.
        quiet: Show no progress.
    """
    unlabelled = [index for index, graph in graphs.items() if graph.label is None]
    if unlabelled:
        raise InputError(
            f"attacks need the label of every graph; graph {unlabelled[0]} has none (set it, or leave it out)"
        )
    results: dict[str, dict[int, AttackResult]] = {who: {} for who in targets.attacked}
    files = {index: run.folder / "attacks" / f"{index:05d}.json" for index in graphs}
    missing = [index for index, path in files.items() if not path.exists()]

    def attacked(index: int) -> dict[str, Any]:
        return {
            who: strongest(
                classifier,
                graphs[index],
                budget=budget,
                attacks=attacks,
                **_options(options, classifier, graphs[index]),
            ).to_dict()
            for who, classifier in targets.attacked.items()
        }

    done = len(graphs) - len(missing)
    with one_thread(), progress("attacking", len(graphs), unit="graphs", quiet=quiet, done=done) as advance:
        for index, found in (engine or ThisProcess()).run(attacked, missing):
            write_json(files[index], found)
            advance(1)
    for index, path in files.items():
        stored = json.loads(path.read_text(encoding="utf-8"))
        for who in results:
            results[who][index] = AttackResult.from_dict(graphs[index], stored[who])
    _write_table(run.folder / "attacks.csv", graphs, results)
    summary = _summarised(targets, graphs, results, budget, radii)
    write_json(run.folder / "summary.json", summary)
    _draw(run.folder / "figures", graphs, results, summary)
    return {"run": str(run.folder), **summary}


def _engine(loaded: LoadedModel, options: AttackOptions, graphs: int) -> Engine:
    engine, sentence = local_engine(options.workers or min(cores(), graphs), loaded.model)
    if sentence:
        note(sentence, quiet=options.silent)
    return engine


def _options(
    options: Options | None, classifier: Classifier | SmoothedClassifier | VotingClassifier, graph: Graph
) -> Options:
    given: Options = {**(options or {}), "label": graph.label}
    if isinstance(classifier, Classifier):
        given["num_classes"] = classifier.num_classes
    return given


def _targets(
    loaded: LoadedModel, others: Mapping[str, LoadedModel], options: AttackOptions, classes: int
) -> tuple[Targets, EdgeNoise | None, EdgeGroups | None]:
    def adapter(model: LoadedModel, asked: str | None) -> Classifier:
        stored = None if model.saved is None else model.saved.metadata.get("features")
        own = getattr(model.model, "num_classes", classes)
        return as_classifier(model.model, num_classes=own, features=load_features(asked or stored))

    base = adapter(loaded, options.features)
    attacked: dict[str, Classifier | SmoothedClassifier | VotingClassifier] = {}
    if options.undefended is not None:
        attacked["undefended"] = adapter(others[options.undefended], None)
    attacked["base"] = base
    noise = groups = None
    trained = loaded.saved is not None and loaded.saved.noise is not None
    if chosen_defence(loaded.saved, options, None) == "voting":
        groups = load_groups(loaded.saved, options.groups)
        attacked["voting"] = VotingClassifier(base, groups, num_classes=base.num_classes)
    elif trained or any(value is not None for value in (options.keep, options.add, options.remove)):
        noise = load_noise(loaded.saved, options.keep, options.add, options.remove)
        attacked["smoothed"] = SmoothedClassifier(base, noise, num_classes=base.num_classes)
    blind = None if options.edge_blind is None else adapter(others[options.edge_blind], None)
    if blind is not None and not blind.edge_blind:
        raise InputError(
            f"--edge-blind must be a model that sees no edges; {options.edge_blind} does (train --model edge-blind)"
        )
    return Targets(attacked, blind), noise, groups


def _certified(folder: Path, settings: Mapping[str, Any]) -> dict[int, tuple[int | None, int]]:
    """Label and radius by graph, from a run of certificates of the same model and defence."""
    run = Run.open(folder)
    for key in ("data_sha256", "model_sha256", "noise", "groups"):
        if run.settings.get(key) != settings[key]:
            raise InputError(
                f"--certificates {folder} has another {key.removesuffix('_sha256')} than the attack (certify the same model, "
                "data and noise or groups)"
            )
    return {row["graph"]: (row["predicted"], row["radius"]) for row in read_table(run)}


def _summarised(
    targets: Targets,
    graphs: Mapping[int, Graph],
    results: Mapping[str, Mapping[int, AttackResult]],
    budget: int,
    radii: Mapping[int, tuple[int | None, int]] | None,
) -> dict[str, Any]:
    labels = np.array([graph.label for graph in graphs.values()])
    steps = range(budget + 1)
    summary: dict[str, Any] = {
        "graphs": len(graphs),
        "budget": budget,
        "accuracy_under_attack": {
            who: robust_accuracy(list(found.values()), labels, steps).tolist() for who, found in results.items()
        },
        "model_calls": {who: sum(result.model_calls for result in found.values()) for who, found in results.items()},
    }
    if targets.edge_blind is not None:
        right = [targets.edge_blind.label_of(graph) == graph.label for graph in graphs.values()]
        summary["edge_blind_accuracy"] = float(np.mean(right))
    known = {index: radii[index] for index in graphs if radii is not None and index in radii}
    defended = next((results[who] for who in ("smoothed", "voting") if who in results), None)
    if known and defended is not None:
        certified = {index: radius if label == graphs[index].label else -1 for index, (label, radius) in known.items()}
        gaps = {
            index: defended[index].size - radius
            for index, radius in certified.items()
            if radius >= 0 and defended[index].success
        }
        summary["certified_graphs"] = len(known)
        summary["certified_accuracy"] = [float(np.mean([radius >= r for radius in certified.values()])) for r in steps]
        summary["gaps"] = {str(index): gap for index, gap in gaps.items()}
        summary["mean_gap"] = float(np.mean(list(gaps.values()))) if gaps else None
        summary["attacks_within_a_certified_radius"] = sum(gap <= 0 for gap in gaps.values())
    return summary


def _write_table(path: Path, graphs: Mapping[int, Graph], results: Mapping[str, Mapping[int, AttackResult]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for index, graph in graphs.items():
        for who, found in results.items():
            result = found[index]
            flips = " ".join(f"{u}-{v}" for u, v in result.flips)
            margins = [f"{margin:.6g}" for margin in (result.margin_before, result.margin_after)]
            writer.writerow([index, graph.name, graph.label, who, result.success, result.size, flips, *margins])
    write_text(path, text.getvalue())


def _draw(
    folder: Path,
    graphs: Mapping[int, Graph],
    results: Mapping[str, Mapping[int, AttackResult]],
    summary: Mapping[str, Any],
) -> None:
    total = len(graphs)
    shares = {_WHO[who]: accuracy for who, accuracy in summary["accuracy_under_attack"].items()}
    counts = dict.fromkeys(shares, total)
    if "certified_accuracy" in summary:
        shares["certified (lower bound)"] = summary["certified_accuracy"]
        counts["certified (lower bound)"] = summary["certified_graphs"]
    curves = [
        Curve(name, tuple(round(share * counts[name]) for share in values), counts[name])
        for name, values in shares.items()
    ]
    title = f"{total} graphs, attacks of up to {summary['budget']} flips"
    accuracy_figure(folder / "accuracy_under_attack", curves, title=title, floor=summary.get("edge_blind_accuracy"))
    for who, found in results.items():
        drawn = [
            (
                graphs[index],
                result,
                f"{graphs[index].name or f'graph {index}'}: {result.size} flip{'s' * (result.size != 1)}",
            )
            for index, result in found.items()
            if result.success and result.size
        ][:_DRAWN]
        if drawn:
            graphs_figure(folder / f"attacked_graphs_{who}", drawn)


def _print_summary(summary: Mapping[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table("accuracy", *(f"r = {r}" for r in range(summary["budget"] + 1)), title=f"{summary['graphs']} graphs")
    rows = {_WHO[who]: values for who, values in summary["accuracy_under_attack"].items()}
    if "certified_accuracy" in summary:
        rows["certified (lower bound)"] = summary["certified_accuracy"]
    if "edge_blind_accuracy" in summary:
        rows["edge-blind"] = [summary["edge_blind_accuracy"]] * (summary["budget"] + 1)
    for name, values in rows.items():
        table.add_row(name, *(f"{value:.3f}" for value in values))
    console.print(table)
    if summary.get("attacks_within_a_certified_radius"):
        console.print(
            f"{summary['attacks_within_a_certified_radius']} attacks succeeded within a certified radius: a certificate or an "
            "attack is wrong, each with its probability alpha (of voting, none)",
            soft_wrap=True,
        )
    if summary.get("mean_gap") is not None:
        console.print(
            f"gap between smallest attack and certified radius: {summary['mean_gap']:.2f} flips on average of "
            f"{len(summary['gaps'])} graphs (1 is tight)",
            soft_wrap=True,
            highlight=False,
        )
    console.print(f"written: {summary['run']}", soft_wrap=True, markup=False, highlight=False)
