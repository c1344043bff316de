"""``flipproof certify``: the evidence and certificates of a data set's test graphs, in a folder that can be continued."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flipproof.cli.defending import chosen_data, defend, num_classes, required_defence, warn_of_training_graphs
from flipproof.cli.line_to_beat import MOST_GRAPHS, NONE, LineToBeat
from flipproof.cli.options import (
    ClusterOptions,
    FolderOptions,
    ModelDataOptions,
    OutputOptions,
    Result,
)
from flipproof.cli.summary import shown_summary, summarise
from flipproof.defences.defence import DefendedClassifier, described
from flipproof.engines import Engine, cores
from flipproof.errors import InputError
from flipproof.fields import from_plain, option, to_plain
from flipproof.graphs import Graph
from flipproof.models.loading import load_model
from flipproof.progress import note
from flipproof.runs.certifying import (
    Line,
    certify_into,
    features_shown,
    keep_line,
    keep_to_path,
    model_paths,
    read_line,
)
from flipproof.runs.run_folder import CertifySettings, Run, written_run

_TINY = 4  # graphs that are not worth more than this process; a single one may be huge, and is split


@dataclass(frozen=True, kw_only=True)
class CertifyOptions(OutputOptions, ClusterOptions, ModelDataOptions, FolderOptions):
    """What ``flipproof certify`` takes; ``None`` where the model folder knows."""

    JOINED = ("settings", "asking")

    edge_blind: str | None = option(
        "The line to beat: a folder of train --model edge-blind; fit, to learn it from all training graphs; or none. By default "
        f"it is learned from the training graphs, at most {MOST_GRAPHS:,}, where they can be read.",
        None,
        panel="Compare",
    )


def certify(options: CertifyOptions) -> Result:
    """Ask what is missing, derive the certificates, summarise."""
    options.check_engine()
    loaded = load_model(options.model)
    defence, values = required_defence(loaded, options.defence_values, options.defence, quiet=options.silent)
    chosen = chosen_data(loaded, options)
    request = from_plain(defence.request, {**values, "graphs": len(chosen.graphs)})
    defended = defend(loaded, defence, num_classes(loaded, options.classes, chosen.dataset), options)
    keep_to_path(defended, options.out)
    defended.check_ahead(chosen.dataset.subset(chosen.graphs), request)
    if options.part == "test":
        warn_of_training_graphs(loaded, chosen, quiet=options.quiet)
    # an edge-blind model is the line itself
    order = NONE if options.edge_blind is None and defence.edge_blind else options.edge_blind
    to_beat = LineToBeat(order, loaded, chosen, trust_features=options.trust_features, quiet=options.silent)
    notes = [*chosen.notes, *_reach(defended, request, chosen.graphs)]
    settings = CertifySettings(
        data=chosen.dataset.name,
        data_sha256=chosen.fingerprint,
        class_names=list(chosen.dataset.class_names),
        part=options.part,
        split_seed=chosen.source.split_seed,
        graphs=list(chosen.graphs),
        graphs_seed=chosen.graphs_seed,
        model=loaded.name,
        model_sha256=loaded.identity,
        features=features_shown(defended, chosen.graphs.values(), loaded.features(options.features)),
        num_classes=defended.num_classes,
        defence=described(defence),
        question=to_plain(request),
        paths=model_paths(defended, chosen.graphs),
    )
    with written_run(options.out, settings) as held, options.cluster() as cluster:
        for sentence in notes:
            note(sentence, quiet=options.silent)
        line = _line(held, to_beat)
        rows = certify_into(
            held,
            defended,
            chosen.graphs,
            engine=lambda graphs: cluster or _local(defended, options, graphs),
            quiet=options.silent,
        )
    summary = {"run": str(options.out), **summarise(rows, settings, line)}
    return Result(summary, shown_summary(summary))


def _line(held: Run[CertifySettings], to_beat: LineToBeat) -> Line:
    """What the certificates are compared with, kept with the run."""
    stored = None
    with suppress(InputError):  # a damaged one is as good as none
        stored = read_line(held)
    line = to_beat.line(stored)
    if line != stored:
        keep_line(held, line)
    return line


def _reach(defended: DefendedClassifier, request: Any, graphs: Mapping[int, Graph]) -> list[str]:
    """What the settings can certify at best, in words, before any long work."""
    usual = sorted(graphs.values(), key=lambda graph: graph.num_slots)[len(graphs) // 2]
    best = defended.defence.best(usual, request, defended.num_classes)
    if best is None:
        return []
    more = " (raise --samples or --alpha, take more noise, or another --method)" if best.radius < 1 else ""
    return [
        f"no certificate with these settings can exceed radius {best.radius}, the most that any answer can have on a graph of "
        f"{usual.num_nodes} nodes{more}"
    ]


def _local(defended: DefendedClassifier, options: CertifyOptions, graphs: int) -> Engine:
    """The cores of this machine: as many as typed, or as there is work for."""
    workers = options.workers or (1 if 1 < graphs < _TINY else cores())
    return defended.engine(workers, quiet=options.silent)
