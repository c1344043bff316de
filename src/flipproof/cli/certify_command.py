"""``flipproof certify``: the evidence and certificates of a data set's test graphs, in a folder that can be continued."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof.cli.defending import (
    chosen_data,
    defend,
    num_classes,
    required_defence,
    warn_of_training_graphs,
)
from flipproof.cli.line_to_beat import MOST_GRAPHS, NONE, LineToBeat
from flipproof.cli.options import (
    ClusterOptions,
    Defended,
    ModelDataOptions,
    OutputOptions,
    option,
)
from flipproof.cli.summary import print_summary, summarise
from flipproof.defences.defence import described
from flipproof.defences.defended import DefendedClassifier
from flipproof.engines import Engine, cores
from flipproof.errors import InputError
from flipproof.fields import from_plain, to_plain
from flipproof.graphs import Graph
from flipproof.models.loading import load_model
from flipproof.progress import note
from flipproof.runs.certifying import certify_into, features_shown, keep_to_path, model_paths
from flipproof.runs.edge_blind_line import Line, keep_line, read_line
from flipproof.runs.run_folder import Run, written_run
from flipproof.runs.settings import CertifySettings

__all__ = ["JOINED", "Options", "run"]

JOINED = ("settings", "asking")
_TINY = 4  # graphs that are not worth more than this process; a single one may be huge, and is split


@dataclass(frozen=True)
class Options(OutputOptions, ClusterOptions, ModelDataOptions, Defended):
    """What ``flipproof certify`` is asked for; ``None`` where the model folder knows."""

    out: Path = option("Run folder; run the same command again to continue.")
    defence: str | None = option(
        "Name of the defence; by default what the model was trained for, or what the options speak of.", None
    )
    edge_blind: str | None = option(
        "The line to beat: a folder of train --model edge-blind; fit, to learn it from all training graphs; or none. By default "
        f"it is learned from the training graphs, at most {MOST_GRAPHS:,}, where they can be read.",
        None,
        panel="Compare",
    )
    memory: str = option("Memory that graphs and the model's work on them may take at once, such as 2GiB.", "1GiB")


def run(options: Options) -> int:
    """Ask what is missing, derive the certificates, print the summary. The exit code."""
    options.check_engine()
    memory = checked_memory(options.memory)
    loaded = load_model(options.model)
    defence, values = required_defence(loaded, options.defence_values, options.defence, quiet=options.silent)
    chosen = chosen_data(loaded, options)
    request = from_plain(defence.request, {**values, "graphs": len(chosen.graphs)})
    classes = num_classes(loaded, options.classes, chosen.dataset)
    features = loaded.features(options.features)
    defended = defend(
        loaded,
        defence,
        classes=classes,
        features=features,
        trust_features=options.trust_features,
        memory=memory,
    )
    keep_to_path(defended, options.out)
    defended.check_ahead(chosen.dataset.subset(chosen.graphs), request)
    if options.part == "test":
        warn_of_training_graphs(loaded, chosen, quiet=options.quiet)
    to_beat = LineToBeat(
        NONE if options.edge_blind is None and defence.edge_blind else options.edge_blind,  # it is the line itself
        loaded,
        chosen,
        trust_features=options.trust_features,
        quiet=options.silent,
    )
    notes = [*chosen.notes, *_reach(defended, request, chosen.graphs, options)]
    asked_for = CertifySettings(
        data=chosen.dataset.name,
        data_sha256=chosen.fingerprint,
        class_names=list(chosen.dataset.class_names),
        part=options.part,
        split_seed=chosen.source.split_seed,
        graphs=list(chosen.graphs),
        graphs_seed=chosen.graphs_seed,
        model=loaded.name,
        model_sha256=loaded.identity,
        features=features_shown(defended, chosen.graphs.values(), features),
        num_classes=defended.num_classes,
        defence=described(defence),
        question=to_plain(request),
        paths=model_paths(defended, chosen.graphs),
    )
    try:
        with written_run(options.out, asked_for) as held, options.cluster() as cluster:
            for sentence in notes:
                note(sentence, quiet=options.silent)
            line = _line(held, to_beat)
            rows = certify_into(
                held,
                defended,
                chosen.graphs,
                engine=lambda graphs: cluster or _local(defended, options, graphs),
                own_model=loaded.saved is None,
                quiet=options.silent,
            )
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}")
        return 130
    summary = {"run": str(options.out), **summarise(rows, asked_for, line)}
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        print_summary(summary)
    return 0


def _line(held: Run[CertifySettings], found: LineToBeat) -> Line:
    """What the certificates are compared with, kept with the run."""
    stored = None
    with suppress(InputError):  # a damaged one is as good as none
        stored = read_line(held)
    line = found.line(stored)
    if line != stored:
        keep_line(held, line)
    return line


def _reach(defended: DefendedClassifier, request: Any, graphs: Mapping[int, Graph], options: Options) -> list[str]:
    """What the settings can certify at best, in words, before any long work; refuses a target beyond it."""
    sizes = sorted((graph.num_slots, place, index) for place, (index, graph) in enumerate(graphs.items()))
    usual = graphs[sizes[len(sizes) // 2][2]]
    best = defended.defence.best(usual, request, defended.num_classes)
    if best is None:
        return []
    reach = best.radius
    target = options.defence_values.get("target_radius")
    if target is not None and target > reach:
        raise InputError(
            f"--target-radius must be within reach; got {target}, and unanimous votes on a graph of {usual.num_nodes} nodes are "
            f"certified up to {reach} (raise --max-samples or --alpha, take more noise, or another --method)"
        )
    more = " (raise --samples or --alpha, take more noise, or another --method)" if reach < 1 else ""
    return [
        f"no certificate with these settings can exceed radius {reach}, the most that any answer can have on a graph of "
        f"{usual.num_nodes} nodes{more}"
    ]


def checked_memory(text: str) -> int:
    """Bytes from ``2GiB``, ``500 MB`` or a plain number.

    >>> checked_memory("1.5GiB"), checked_memory("500 MB")
    (1610612736, 500000000)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]i?B|B)?\s*", text, re.IGNORECASE)
    if found is None:
        raise InputError(f"--memory must be an amount such as 2GiB or 500MB; got {text!r} (the default is 1GiB)")
    unit = (found[2] or "B").upper()
    base = 1024 if "I" in unit else 1000
    number = int(float(found[1]) * base ** "BKMGT".index(unit[0]))
    if not 2**20 <= number < 2**50:
        raise InputError(f"--memory must be at least 1MiB and below 1024TiB; got {text!r} (the default is 1GiB)")
    return number


def _local(defended: DefendedClassifier, options: Options, graphs: int) -> Engine:
    """The cores of this machine: as many as asked for, and as there is work for."""
    workers = options.workers or (1 if 1 < graphs < _TINY else cores())
    return defended.engine(workers, quiet=options.silent)
