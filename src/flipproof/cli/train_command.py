"""``flipproof train``: a base classifier, with all that ``certify`` needs to know beside its weights."""

from __future__ import annotations

import inspect
import shlex
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.checks import checked_seed
from flipproof.cli.defending import own_values, spoken_of
from flipproof.cli.options import (
    DataOptions,
    Defended,
    FeatureOptions,
    FolderOptions,
    OutputOptions,
    Result,
    TrainingOptions,
    training_option,
)
from flipproof.datasets import NodeTask, Split, split_nodes
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import whole_graphs
from flipproof.models.loading import load_features
from flipproof.progress import note
from flipproof.report.templates import rendered
from flipproof.report.wording import setting_words
from flipproof.studies.candidate import Candidate, training_told
from flipproof.studies.search_space import Space, default_features, spaces, undefended


@dataclass(frozen=True, kw_only=True)
class TrainOptions(OutputOptions, DataOptions, TrainingOptions, FeatureOptions, Defended, FolderOptions):
    JOINED = ("settings", "training_options")

    out: Path = option("Folder for the model; run the same command again to continue.")
    model: str = option(
        "gcn, gin, graphsage, gat, local; edge-blind, the line to beat: the best of a random forest, a perceptron and the most "
        "frequent class, on what does not depend on edges. By default the one that the defence needs, or gin.",
        "",
    )
    defence: str | None = option("Name of the defence; by default the one that the options imply.", None)
    seed: int = training_option("Seed of the weights, the order of graphs and the training noise.", 0)
    corrected: bool = training_option("Let gin correct for the flips that it expects.", False)
    hidden: int | None = training_option("Width of the layers.", None)
    layers: int | None = training_option("Number of layers.", None)
    task: str = option(
        "graphs, or nodes to classify those of a citation network (--data its npz file or folder).", "graphs"
    )
    replace: bool = option("Replace the model in --out.", False)

    @property
    def checkpoint(self) -> Path:
        return self.out.with_name(f"{self.out.name}.part")

    @property
    def kept(self) -> str:
        return "what is finished is kept" if self.checkpoint.exists() else "no epoch was finished"


def train(options: TrainOptions) -> Result:
    source, (candidate, home) = options.source, _candidate(options)
    learner = candidate if home.trains or home.name != candidate.model else replace(candidate, defence=home)
    network = _network(options, learner)
    from flipproof import models
    from flipproof.classifiers.clean_edges import refuse_clean_edges

    graphs = source.load()
    parts = source.split(graphs)
    at_once = bool(candidate.training.get("counts_only"))
    if at_once:  # there is no epoch to choose: all are learnt from
        known = np.union1d(parts.train_indices, parts.validation_indices)
        parts = replace(parts, train_indices=known, validation_indices=known[:0])
    spec = default_features(home.name, graphs) if options.features is None else options.features
    hook = load_features(spec)
    if hook.spec is None:
        raise InputError(
            f"--features must be one that a model folder can name; got {spec} (a function of your own works with "
            "flipproof.train, and with certify --model package.module:factory)"
        )
    if hook.reads_own and not options.trust_features:
        refuse_clean_edges(whole_graphs(parts.train), graphs.feature_names)
    if graphs.attributes or graphs.remarks:
        note(graphs.describe_features(), quiet=options.silent)
    started = time.perf_counter()
    if at_once:
        note("learning numbers of nodes and edges: a moment, without epochs", quiet=options.silent)
    defence = {"name": candidate.defence.name, **candidate.settings}
    arguments: dict[str, Any] = {
        **options.training,
        "validation": parts.validation if len(parts.validation) else None,
        "checkpoint": options.checkpoint,
        "progress": not options.silent,
    }
    settled: dict[str, Any] = {"features": hook, "seed": options.seed, "network": network}
    if options.task == "nodes":
        model, settings, told = _on_nodes(learner, parts, settled, arguments)
    else:
        learned = learner.learn(parts.train, factory=None, **settled, **arguments)
        model, settings, told = learned.model, learned.settings, learned.told
    data = source.metadata(graphs)
    models.save(model, options.out, defence=defence, features=hook, metadata={**data, "training": settings})
    if "epochs" in told:
        options.checkpoint.unlink(missing_ok=True)
    if at_once:
        del told["epochs"], told["best_epoch"]
        told = {"chosen": "by numbers of nodes and edges", **told}
    numbers = {part: len(getattr(parts, f"{part}_indices")) for part in ("train", "validation", "test")}
    summary: dict[str, Any] = {
        "model": str(options.out),
        "network": candidate.model,
        "data": graphs.name,
        "features": hook.spec,
        "attributes": [asdict(attribute) for attribute in graphs.attributes],
        "defence": defence,
        "graphs": numbers,
        "seconds": round(time.perf_counter() - started, 3),
        **told,
    }
    purpose = f"{candidate.defence.name}: {setting_words(defence) or 'the graphs as they are'}"
    command = f"flipproof certify --model {shlex.quote(str(options.out))} --out RUN"
    words = rendered("trained.txt", **summary, task=options.task, purpose=purpose, command=command)
    return Result(summary, words.splitlines())


def _candidate(options: TrainOptions) -> tuple[Candidate, Space]:
    """What is trained: a model says its defence, and a defence its model; and the defence that such a model is made for."""
    name, values, kind = options.defence, options.defence_values, options.model
    known_spaces = spaces(options.task)
    home = next((known for known in known_spaces if kind == (known.network if known.trains else known.name)), None)
    if name is None and home is not None and (home.edge_blind or not values):
        name = home.name
    defence = spoken_of(values, name, options.task) or undefended()
    settings = defence.checked(own_values(defence, values, "settings"))
    extra = {entry.name: values.get(entry.name, entry.default) for entry in defence.training_options}
    network = next((known.network for known in known_spaces if known.network), "") if options.task == "nodes" else "gin"
    model = options.model or defence.network or (network if defence.trains else defence.name)
    return Candidate(defence, settings, model, {**extra, **options.typed_training}), home or defence


def _on_nodes(
    candidate: Candidate, parts: Split, settled: dict[str, Any], arguments: dict[str, Any]
) -> tuple[Any, ...]:
    from flipproof import training

    network, _ = candidate.build(parts.train, **settled)
    taken, task = inspect.signature(training.train_nodes).parameters, NodeTask.of(parts.dataset)
    own = {name: value for name, value in {**arguments, **candidate.training, **settled}.items() if name in taken}
    result = training.train_nodes(network, task, split=split_nodes(task, seed=parts.seed), **own)
    return network, result.settings, training_told(result)


def _network(options: TrainOptions, candidate: Candidate) -> dict[str, Any]:
    """Arguments of the network; refuses what can be told before torch is loaded."""
    checked_seed(options.seed)
    out, needed, model = options.out, candidate.defence.network, candidate.model
    noise = candidate.training.get("noise")
    if out.exists() and not (out / "config.json").is_file():
        raise InputError(f"--out {out} exists and is not a model folder (choose another name)")
    if out.exists() and not options.replace:
        raise InputError(f"--out {out} holds a model already (choose another folder, or add --replace)")
    if options.task == "nodes":
        for_graphs = {"corrected": False, "objective": "samples", "batch_size": None, "class_weights": False}
        for name, default in for_graphs.items():
            if getattr(options, name) != default:
                raise InputError(f"--{name.replace('_', '-')} is for graphs (leave it out with --task nodes)")
        if model != (needed or "node-gcn"):
            raise InputError(f"--task nodes trains node-gcn; got --model {model} (leave --model out)")
    if needed is not None and model != needed:
        raise InputError(f"{candidate.defence.name} needs --model {needed}; got {model} (leave --model out)")
    if options.corrected and (model != "gin" or noise is None):
        raise InputError(
            f"--corrected is for gin under noise; got --model {model} and "
            f"{'no noise' if noise is None else noise} (leave it out, or train gin with --keep 0.9)"
        )
    if candidate.fitted:
        if options.hidden is not None or options.objective != "samples":
            raise InputError(f"--hidden and --objective belong to networks; got one for {model} (leave them out)")
        return {}
    from flipproof import models

    if model not in models.NAMES:
        fitted = (known.name for known in spaces() if not known.trains)
        raise InputError(
            f"--model must be one of {', '.join([*models.NAMES, *fitted])}; got {model!r} (train a network of your own in "
            "Python, and certify it with --model package.module:factory)"
        )
    network = {key: value for key in ("hidden", "layers") if (value := getattr(options, key)) is not None}
    return network | ({"noise": [noise.p_add, noise.p_remove]} if options.corrected and noise is not None else {})
