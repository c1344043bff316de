"""``flipproof certify``: the evidence and certificates of a data set's test graphs, in a folder that can be continued."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.metrics import majority_share
from flipproof.cli.defending import (
    ChosenData,
    chosen_data,
    chosen_defence,
    defend,
    edge_blind_model,
    num_classes,
    own_values,
    unused,
    warn_of_training_graphs,
)
from flipproof.cli.options import (
    CompareOptions,
    Defended,
    ModelDataOptions,
    OutputOptions,
    WorkerOptions,
    option,
)
from flipproof.cli.summary import print_summary, summarise
from flipproof.datasets.sources import fingerprint
from flipproof.defences import defence_names
from flipproof.defences.defence import Defence
from flipproof.engines import Engine, cores, ray_cluster
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.models.loading import features_identity, load_model
from flipproof.progress import note
from flipproof.runs.certifying import certify_into, model_paths
from flipproof.runs.edge_blind_line import write_line
from flipproof.runs.run_folder import written_run
from flipproof.runs.settings import CertifySettings

__all__ = ["JOINED", "Options", "run"]

JOINED = ("settings", "asking")
_ENGINES = ("local", "ray")
_TINY = 4  # pieces of work that are not worth more than this process


@dataclass(frozen=True)
class Options(OutputOptions, WorkerOptions, CompareOptions, ModelDataOptions, Defended):
    """What ``flipproof certify`` is asked for; ``None`` where the model folder knows."""

    out: Path = option("Run folder; run the same command again to continue.")
    defence: str | None = option(
        "Name of the defence; by default what the model was trained for, or what the options speak of.", None
    )
    engine: str = option("local, or ray for a cluster (needs flipproof\\[ray]).", "local", panel="Where")
    address: str | None = option(
        "Address of a Ray cluster that is running; by default one is started here.", None, panel="Where"
    )
    memory: str = option("Memory that graphs and the model's work on them may take at once, such as 2GiB.", "1GiB")


def run(options: Options) -> int:
    """Ask what is missing, derive the certificates, print the summary. The exit code."""
    _check_engine(options)
    memory = checked_memory(options.memory)
    loaded = load_model(options.model)
    found = chosen_defence(loaded, options.defence_values, options.defence)
    if found is None:
        raise InputError(
            "the model was not trained for a defence, so one must be given (--keep 0.9, or --add and --remove, or --defence "
            f"with one of {', '.join(defence_names())})"
        )
    kind, settings = found
    values = options.defence_values
    if kind.edge_blind and options.defence is None:
        values = unused(values, quiet=options.silent)
    asked = own_values(kind, values, "asking")
    chosen = chosen_data(loaded, options)
    question = kind.question_type.of(graphs=len(chosen.graphs), **{**_defaults(kind), **asked})
    classes = num_classes(loaded, options.classes, chosen.dataset)
    features = loaded.features(options.features)
    defence = defend(
        loaded,
        kind,
        settings,
        classes=classes,
        features=features,
        trust_features=options.trust_features,
        memory=memory,
    )
    defence.check(chosen.dataset.subset(chosen.graphs))
    if options.part == "test":
        warn_of_training_graphs(loaded, chosen, quiet=options.quiet)
    line = None
    if options.edge_blind is not None:
        blind = edge_blind_model(options.edge_blind, chosen, quiet=options.quiet)
        line = sum(blind.predict(graph) == graph.label for graph in chosen.graphs.values())
    notes = [*chosen.notes, *_reach(defence, question, chosen.graphs, options)]
    asked_for = CertifySettings(
        data=chosen.dataset.name,
        data_sha256=fingerprint(chosen.dataset),
        class_names=list(chosen.dataset.class_names),
        part=options.part,
        split_seed=chosen.source.split_seed,
        graphs=list(chosen.graphs),
        graphs_seed=chosen.graphs_seed,
        model=loaded.name,
        model_sha256=loaded.identity,
        features=features_identity(features),
        num_classes=defence.num_classes,
        defence=defence.describe(),
        question=question.to_dict(),
        paths=model_paths(defence, chosen.graphs),
    )
    try:
        with written_run(options.out, asked_for) as held, _cluster(options) as cluster:
            for sentence in notes:
                note(sentence, quiet=options.silent)
            rows = certify_into(
                held,
                defence,
                chosen.graphs,
                engine=lambda pieces: cluster or _local(defence, options, pieces),
                own_model=loaded.saved is None,
                quiet=options.silent,
            )
            if line is not None:
                write_line(options.out, line, len(rows))
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}")
        return 130
    share = None if line is None else line / len(rows)
    majority = _majority(chosen)
    summary = {"run": str(options.out), **summarise(rows, asked_for, edge_blind=share, majority=majority)}
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        print_summary(summary)
    return 0


def _defaults(kind: type[Defence]) -> dict[str, Any]:
    """What the command line asks where nothing is typed: repeatable, unlike the library's fresh seeds."""
    return {entry.name: entry.default for entry in kind.asking if entry.default is not None}


def _majority(chosen: ChosenData) -> float | None:
    """Accuracy of always naming the class that is most frequent among the training graphs."""
    trained = [graph.label for graph in chosen.source.split(chosen.dataset).train if graph.label is not None]
    labels = [graph.label for graph in chosen.graphs.values() if graph.label is not None]
    return majority_share(np.array(trained), np.array(labels)) if trained and labels else None


def _reach(defence: Defence, question: Any, graphs: dict[int, Graph], options: Options) -> list[str]:
    """What the settings can certify at best, in words, before any long work; refuses a target beyond it."""
    usual = sorted(graphs.values(), key=lambda graph: graph.num_slots)[len(graphs) // 2]
    reach = defence.reach(usual, question)
    if reach is None:
        return []
    target = options.defence_values.get("target_radius")
    if target is not None and target > reach:
        raise InputError(
            f"--target-radius must be within reach; got {target}, and unanimous votes on a graph of {usual.num_nodes} nodes are "
            f"certified up to {reach} (raise --max-samples or --alpha, take more noise, or another --method)"
        )
    more = " (raise --samples or --alpha, take more noise, or another --method)" if reach < 1 else ""
    return [
        f"no certificate with these settings can exceed radius {reach}, that of unanimous votes on a graph of "
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


def _check_engine(options: Options) -> None:
    if options.engine not in _ENGINES:
        raise InputError(
            f"--engine must be one of {', '.join(_ENGINES)}; got {options.engine!r} (local is the default)"
        )
    if options.address is not None and options.engine != "ray":
        raise InputError(f"--address is a Ray cluster's; got --engine {options.engine} (add --engine ray)")
    if options.engine == "ray":
        ray_cluster.installed()


@contextmanager
def _cluster(options: Options) -> Iterator[Engine | None]:
    """The Ray cluster, where one is asked for."""
    if options.engine == "ray":
        with ray_cluster.RayCluster(options.address, workers=options.workers) as cluster:
            note(f"working on {cluster}", quiet=options.silent)
            yield cluster
    else:
        yield None


def _local(defence: Defence, options: Options, pieces: int) -> Engine:
    """The cores of this machine: as many as asked for, and as there is work for."""
    workers = options.workers or (1 if pieces < _TINY else cores())
    return defence.engine(workers, quiet=options.silent)
