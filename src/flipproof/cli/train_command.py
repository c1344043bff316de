"""``flipproof train``: a base classifier, with all that ``certify`` needs to know beside its weights."""

from __future__ import annotations

import inspect
import shlex
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from flipproof.datasets import Dataset, NodeTask, Split, split_nodes
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import whole_graphs
from flipproof.models.loading import load_features
from flipproof.progress import note
from flipproof.report.templates import rendered
from flipproof.report.wording import setting_words
from flipproof.studies.search_space import Space, default_features, fit_edge_blind, spaces, undefended

if TYPE_CHECKING:
    from flipproof.classifiers.features import NodeFeatures
    from flipproof.models.network import NamedNetwork

_Trained = tuple[Any, dict[str, Any], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class TrainOptions(OutputOptions, DataOptions, TrainingOptions, FeatureOptions, Defended, FolderOptions):
    JOINED = ("settings", "training_options")

    out: Path = option("Folder for the model; run the same command again to continue.")
    model: str = option(
        "gcn, gin, graphsage, gat, local; edge-blind, the line to beat: the best of a random forest, a perceptron and the most "
        "frequent class, on what does not depend on edges. By default the one that the defence needs, or gin.",
        "",
    )
    defence: str | None = option("Name of the defence; by default the one that the options speak of.", None)
    seed: int = training_option("Seed of the weights, the order of graphs and the training noise.", 0)
    corrected: bool = training_option("Let gin correct for the flips that it expects.", False)
    hidden: int | None = training_option("Width of the layers.", None)
    layers: int | None = training_option("Number of layers.", None)
    task: str = option(
        "graphs, or nodes to classify those of a citation network (--data its npz file or folder).", "graphs"
    )
    replace: bool = option("Replace a model that stands in --out.", False)

    @property
    def checkpoint(self) -> Path:
        return self.out.with_name(f"{self.out.name}.part")

    @property
    def kept(self) -> str:
        return "what is finished is kept" if self.checkpoint.exists() else "no epoch was finished"


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is trained: a model by name for a defence, by default the one that such a model is made for, its home."""

    model: str
    home: Space
    defence: Space
    settings: dict[str, Any]
    arguments: dict[str, Any]
    task: str

    @property
    def fitted(self) -> bool:
        return not self.home.trains and self.model == self.home.name


def train(options: TrainOptions) -> Result:
    source, plan = options.source, _plan(options)
    _refuse_early(options, plan)
    from flipproof import models
    from flipproof.classifiers.clean_edges import refuse_clean_edges

    graphs = source.load()
    parts = source.split(graphs)
    if plan.arguments.get("counts_only"):  # there is no epoch to choose: all are learnt from
        known = np.union1d(parts.train_indices, parts.validation_indices)
        parts = replace(parts, train_indices=known, validation_indices=known[:0])
    spec = default_features(plan.home.name, graphs) if options.features is None else options.features
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
    defence = {"name": plan.defence.name, **plan.settings}
    model, settings, told = (_fitted if plan.fitted else _trained)(parts, hook, options, plan)
    data = source.metadata(graphs)
    models.save(model, options.out, defence=defence, features=hook, metadata={**data, "training": settings})
    if "epochs" in told:
        options.checkpoint.unlink(missing_ok=True)
    numbers = {part: len(getattr(parts, f"{part}_indices")) for part in ("train", "validation", "test")}
    summary: dict[str, Any] = {
        "model": str(options.out),
        "network": plan.model,
        "data": graphs.name,
        "features": hook.spec,
        "attributes": [asdict(attribute) for attribute in graphs.attributes],
        "defence": defence,
        "graphs": numbers,
        "seconds": round(time.perf_counter() - started, 3),
        **told,
    }
    purpose = f"{plan.defence.name}: {setting_words(defence) or 'the graphs as they are'}"
    command = f"flipproof certify --model {shlex.quote(str(options.out))} --out RUN"
    words = rendered("trained.txt", **summary, task=plan.task, purpose=purpose, command=command)
    return Result(summary, words.splitlines())


def _plan(options: TrainOptions) -> _Plan:
    """What the options ask for: a model says its defence, and a defence its model."""
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
    arguments = defence.training_arguments(settings) | extra
    return _Plan(model, home or defence, defence, settings, arguments, options.task)


def _trained(parts: Split, hook: NodeFeatures, options: TrainOptions, plan: _Plan) -> _Trained:
    from flipproof import training

    network = _network(options, plan, hook, parts.train)
    arguments: dict[str, Any] = {
        "features": hook,
        **{**options.training, **plan.arguments, **options.typed_training},
        "validation": parts.validation if len(parts.validation) else None,
        "seed": options.seed,
        "checkpoint": options.checkpoint,
        "progress": not options.silent,
    }
    at_once = bool(arguments.get("counts_only"))
    if at_once:
        note("learning numbers of nodes and edges: a moment, without epochs", quiet=options.silent)
    if options.task == "nodes":
        taken, task = inspect.signature(training.train_nodes).parameters, NodeTask.of(parts.dataset)
        own = {name: value for name, value in arguments.items() if name in taken}
        result = training.train_nodes(network, task, split=split_nodes(task, seed=parts.seed), **own)
    else:
        result = training.train_for(network, parts.train, **arguments)
    told: dict[str, Any] = {"epochs": result.epochs, "best_epoch": result.best_epoch}
    if at_once:
        told = {"chosen": "by numbers of nodes and edges"}
    accuracy = {"train_accuracy": result.final.accuracy, "validation_accuracy": result.final.validation_accuracy}
    return network, result.settings, {**told, **accuracy, "seconds": round(result.seconds, 3)}


def _fitted(parts: Split, hook: NodeFeatures, options: TrainOptions, plan: _Plan) -> _Trained:
    """The line to beat, how it was fitted, and what is told of it."""
    validation = parts.validation if len(parts.validation) else None
    model, fit = fit_edge_blind(parts.train, features=hook, validation=validation, seed=options.seed)
    told = {"chosen": fit.kind, "compared": dict(fit.compared)}
    accuracy = {"train_accuracy": fit.accuracy, "validation_accuracy": fit.validation_accuracy}
    return model, {"seed": options.seed, "chosen": fit.kind}, told | accuracy


def _refuse_early(options: TrainOptions, plan: _Plan) -> None:
    """What can be told before torch is loaded."""
    checked_seed(options.seed)
    out, needed, noise = options.out, plan.defence.network, plan.arguments.get("noise")
    if out.exists() and not (out / "config.json").is_file():
        raise InputError(f"--out {out} exists and is not a model folder (choose another name)")
    if out.exists() and not options.replace:
        raise InputError(f"--out {out} holds a model already (choose another folder, or add --replace)")
    if options.task == "nodes":
        for_graphs = {"corrected": False, "objective": "samples", "batch_size": None, "class_weights": False}
        for name, default in for_graphs.items():
            if getattr(options, name) != default:
                raise InputError(f"--{name.replace('_', '-')} is for graphs (leave it out with --task nodes)")
        if plan.model != (needed or "node-gcn"):
            raise InputError(f"--task nodes trains node-gcn; got --model {plan.model} (leave --model out)")
    if needed is not None and plan.model != needed:
        raise InputError(f"{plan.defence.name} needs --model {needed}; got {plan.model} (leave --model out)")
    if options.corrected and (plan.model != "gin" or noise is None):
        raise InputError(
            f"--corrected is for gin under noise; got --model {plan.model} and "
            f"{'no noise' if noise is None else noise} (leave it out, or train gin with --keep 0.9)"
        )
    if plan.fitted and (options.hidden is not None or options.objective != "samples"):
        raise InputError(f"--hidden and --objective belong to networks; got one for {plan.model} (leave them out)")


def _network(options: TrainOptions, plan: _Plan, hook: NodeFeatures, graphs: Dataset) -> NamedNetwork:
    from flipproof import models

    name = plan.model
    if name not in models.NAMES:
        fitted = (known.name for known in spaces() if not known.trains)
        raise InputError(
            f"--model must be one of {', '.join([*models.NAMES, *fitted])}; got {name!r} (train a network of your own in "
            "Python, and certify it with --model package.module:factory)"
        )
    # a constant says nothing beside the number of nodes, which a network made for its defence knows
    width = 0 if hook.spec == "constant" and plan.home.network == name else int(hook.of(graphs[0]).shape[1])
    config: dict[str, Any] = {"name": name, "in_features": width, "num_classes": graphs.num_classes}
    config |= {key: value for key in ("hidden", "layers") if (value := getattr(options, key)) is not None}
    if options.corrected:
        noise = plan.arguments["noise"]
        config["noise"] = [noise.p_add, noise.p_remove]
    return models.build(config, seed=options.seed)
