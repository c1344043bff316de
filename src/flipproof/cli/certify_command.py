"""``flipproof certify``: the evidence and certificates of a data set's test graphs, in a folder that can be continued."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipproof.certificates.certificate import NODE_CHANGES
from flipproof.certificates.metrics import mean_radius, only_class, right_radii, share_interval, shares
from flipproof.cli.defending import (
    MOST_GRAPHS,
    NONE,
    chosen_data,
    defend,
    line_to_beat,
    num_classes,
    required_defence,
    warn_of_training_graphs,
)
from flipproof.cli.options import ClusterOptions, FolderOptions, ModelDataOptions, Result, add_shares
from flipproof.defences.defence import DefendedClassifier, feature_noise_of
from flipproof.engines import cores
from flipproof.errors import InputError
from flipproof.fields import from_plain, option, to_plain
from flipproof.graphs import Graph
from flipproof.models.loading import load_model
from flipproof.progress import note
from flipproof.report.content import ATTACKERS, RADII
from flipproof.report.templates import rendered
from flipproof.report.wording import LINE, shown_settings, title
from flipproof.runs.certifying import Line, certified_run, certify_into, keep_line, read_line
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.table import Row, columns_of
from flipproof.studies.search_space import space_of

_TINY = 4  # graphs that are not worth more than this process; a single one may be huge, and is split
_KEYS = ("certified_accuracy", "certified_accuracy_additions", "certified_accuracy_removals")  # in a summary


@dataclass(frozen=True, kw_only=True)
class CertifyOptions(ClusterOptions, ModelDataOptions, FolderOptions):
    JOINED = ("settings", "asking")

    edge_blind: str | None = option(
        "The line to beat: a folder of train --model edge-blind, or none. By default it is learned from the training graphs, "
        f"at most {MOST_GRAPHS:,}, where they can be read.",
        None,
        panel="Compare",
    )


def certify(options: CertifyOptions) -> Result:
    loaded = load_model(options.model, task=options.task)
    defence, values = required_defence(loaded, options)
    chosen = chosen_data(loaded, options)
    request = from_plain(defence.request, {**values, "graphs": len(chosen.graphs)})
    defended = defend(loaded, defence, num_classes(loaded, options.classes, chosen.dataset), options)
    if options.part == "test":
        warn_of_training_graphs(loaded, chosen, quiet=options.quiet)
    # an edge-blind model is the line itself
    order = NONE if options.edge_blind is None and defence.edge_blind else options.edge_blind
    to_beat = line_to_beat(order, loaded, chosen, trust_features=options.trust_features, quiet=options.silent)
    notes = [*chosen.notes, *_best_reach(defended, request, chosen.graphs)]

    def workers(count: int) -> int:
        return options.workers or (1 if 1 < count < _TINY else cores())

    stated: dict[str, Any] = {"model": loaded.name, "model_sha256": loaded.identity, "part": options.part}
    stated |= {"split_seed": chosen.source.split_seed, "graphs_seed": chosen.graphs_seed}
    features = loaded.features(options.features)
    begun = certified_run(options.out, defended, request, chosen.dataset, chosen.graphs, features=features, **stated)
    with begun as held, options.cluster() as cluster:
        for sentence in notes:
            note(sentence, quiet=options.silent)
        stored = None
        with suppress(InputError):  # a damaged line is as good as none
            stored = read_line(held)
        line = to_beat(stored)
        if line != stored:
            keep_line(held, line)
        rows = certify_into(
            held,
            defended,
            chosen.graphs,
            engine=lambda count: cluster or defended.engine(workers(count), quiet=options.silent),
            quiet=options.silent,
        )
    summary = {"run": str(options.out), **summarise(rows, held.settings, line)}
    return Result(summary, shown_summary(summary))


def _best_reach(defended: DefendedClassifier, request: Any, graphs: Mapping[int, Graph]) -> list[str]:
    """What the settings can certify at best, in words, before any long work."""
    usual = sorted(graphs.values(), key=lambda graph: graph.num_slots)[len(graphs) // 2]
    best = defended.defence.best(usual, request, defended.num_classes)
    if best is None:
        return []
    size, remedy = f"a graph of {usual.num_nodes} nodes", f" ({_remedy(defended, request, usual, best.radius)})"
    if best.abstains:
        return [f"with these settings every answer about {size} abstains, even if all samples agree{remedy}"]
    return [f"with these settings no answer about {size} can be certified beyond radius {best.radius}{remedy}"]


def _remedy(defended: DefendedClassifier, request: Any, graph: Graph, radius: int) -> str:
    """What reaches farther: the next larger effort that does, with what it reaches."""
    for _, values in space_of(type(defended.defence)).efforts:
        more = from_plain(type(request), {**to_plain(request), **values})
        best = defended.defence.best(graph, more, defended.num_classes)
        if best is not None and best.radius > radius:
            name, amount = next(iter(values.items()))
            return f"raise --{name} to {amount}: radius {best.radius}"
    return "more needs other settings of the defence: see flipproof describe"


# ---- what is said of it ------------------------------------------------------------------------------------------------


def summarise(rows: Sequence[Row], settings: CertifySettings, line: Line | None = None) -> dict[str, Any]:
    """Certified accuracy at a few radii against three attackers, with its intervals, and the average radius; plain JSON."""
    line = line or Line()
    nodes, feature_noise = settings.question.get("nodes"), feature_noise_of(settings.defence_object)
    features = None if feature_noise is None else feature_noise.changes(2)[0].name.split()[-1]
    attackers = _attackers(nodes, features)
    columns = columns_of(rows, "predicted", "label", "method", "alpha", "samples", *attackers)
    predicted, labels, samples = columns["predicted"], columns["label"], columns["samples"]
    radii = {attackers[column][0]: right_radii(columns[column], predicted, labels) for column in attackers}
    only, names = only_class(predicted, labels), settings.class_names
    summary = {
        "data": settings.data,
        "model": settings.model,
        "part": settings.part,
        "task": settings.task,
        "graphs": len(rows),
        "defence": shown_settings(settings.defence),
        "defended_by": title(settings.defence),
        "method": columns["method"][0],
        "alpha": columns["alpha"][0],
        "simultaneous": bool(settings.question.get("simultaneous")),
        "samples": samples[0],
        "only_class": None if only is None else names[only] if only < len(names) else f"class {only}",
        "abstained": sum(label is None for label in predicted),
        "average_certified_radius": mean_radius(radii["certified_accuracy"]),
        **({} if nodes is None else {"node_changes": nodes}),
        **({} if features is None else {"changed_features": features}),
        **{key: _by_radius(shares(radii[key], RADII).tolist()) for key in radii},
        "intervals": {
            key: _by_radius(_ends([int((reached >= r).sum()) for r in RADII], len(rows)))
            for key, reached in radii.items()
        },
        "edge_blind": settings.defence_class.edge_blind,
        "edge_blind_missing": line.missing or None,
    }
    for key, right in (("edge_blind", line.right(rows)), ("majority", line.majority_right(rows))):
        summary[f"{key}_accuracy"] = None if right is None else right / len(rows)
        summary[f"{key}_interval"] = None if right is None else _ends([right], len(rows))[0]
    return summary


def _attackers(nodes: int | None, features: str | None) -> dict[str, tuple[str, str]]:
    attackers = {column: (key, words) for key, (column, words) in zip(_KEYS, ATTACKERS.items(), strict=True)}
    if nodes is not None:
        for change in NODE_CHANGES:
            words = f"{nodes} node{'s' * (nodes != 1)} {change}"
            attackers[f"{change}_nodes_radius"] = f"certified_accuracy_{change}_nodes", words
    if features is not None:
        attackers["feature_radius"] = "certified_accuracy_features", f"r changed {features}, no flip"
    return attackers


def _by_radius(values: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(map(str, RADII), values, strict=True))


def _ends(right: Sequence[int], graphs: int) -> list[list[float]]:
    return np.round(np.transpose(share_interval(right, graphs)), 6).tolist()  # type: ignore[no-any-return]


def shown_summary(summary: dict[str, Any]) -> Iterator[Any]:
    from rich.table import Table

    any_flips, blind = summary["certified_accuracy"], summary["edge_blind_accuracy"]
    line = summary["majority_accuracy"] if blind is None else blind
    reach = max([r for r in RADII if line is not None and any_flips[str(r)] > line], default=-1)
    yield from rendered("certified.txt", **summary, reach=reach).splitlines()
    part = "" if summary["part"] == "all" else f"{summary['part']} "
    of = f"{summary['graphs']} {part}{summary['task']}"
    title = f"{summary['model']} on {summary['data']}: certified accuracy of {of}"
    table = Table("attacker", *(f"r = {r}" for r in RADII), title=title)
    for key, attacker in _attackers(summary.get("node_changes"), summary.get("changed_features")).values():
        if key not in _KEYS[1:] or summary[key] != any_flips:  # else it says nothing new
            add_shares(table, attacker, summary[key].values(), summary["intervals"][key].values())
    if blind is not None:
        table.add_section()
        add_shares(table, LINE, [blind] * len(RADII), [summary["edge_blind_interval"]] * len(RADII))
    yield table
    yield f"written: {summary['run']}"
    yield f"next: flipproof report {shlex.quote(summary['run'])}"
