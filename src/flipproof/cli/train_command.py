"""``flipproof train``: a base classifier, with all that ``certify`` needs to know beside its weights."""

from __future__ import annotations

import json
import shlex
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipproof.checks import checked_seed
from flipproof.cli.defending import given_defence, own_values, unused
from flipproof.cli.options import DataOptions, Defended, FeatureOptions, OutputOptions, TrainingOptions, option
from flipproof.cli.summary import print_lines
from flipproof.datasets import Dataset, Split
from flipproof.errors import InputError
from flipproof.models.loading import load_features
from flipproof.progress import note, progress
from flipproof.report.wording import setting_words
from flipproof.studies.search_space import Space, space, spaces
from flipproof.training.for_defences import fit_edge_blind

if TYPE_CHECKING:
    from flipproof.classifiers.features import NodeFeatures
    from flipproof.models import NodeStatistics
    from flipproof.models.network import NamedNetwork

__all__ = ["JOINED", "Options", "run"]

JOINED = ("settings", "training_options")
_BLIND, _LOCAL = "edge-blind", "local"


@dataclass(frozen=True)
class Options(OutputOptions, DataOptions, TrainingOptions, FeatureOptions, Defended):
    """What ``flipproof train`` is asked for."""

    out: Path = option("Folder for the model; run the same command again to continue.")
    model: str = option(
        "gcn, gin, graphsage, gat, local; edge-blind, the line to beat: the better of a random forest and a perceptron on what "
        "does not depend on edges (edge-blind:gin blinds a network instead). By default the one that the defence needs, or gin.",
        "",
    )
    defence: str | None = option("Name of the defence; by default the one that the options speak of.", None)
    seed: int = option("Seed of the weights, the order of graphs and the training noise.", 0, panel="Training")
    corrected: bool = option("Let gin correct for the flips that it expects.", False, panel="Training")
    hidden: int | None = option("Width of the layers.", None, panel="Training")
    layers: int | None = option("Number of layers.", None, panel="Training")
    members: int | None = option("Number of local networks whose mean answers.", None, panel="Training")
    replace: bool = option("Replace a model that stands in --out.", False)

    @property
    def checkpoint(self) -> Path:
        """The training under way."""
        return self.out.with_name(f"{self.out.name}.part")


@dataclass(frozen=True, eq=False)
class _Plan:
    """What the model is trained for: the defence, its settings, and the arguments that training takes from it."""

    defence: Space
    settings: dict[str, Any]
    arguments: dict[str, Any]

    @property
    def words(self) -> str:
        """What the model sees in training, in words."""
        return setting_words({"name": self.defence.name, **self.settings}) or "the graphs as they are"


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A trained model and what its training says."""

    model: NamedNetwork | NodeStatistics
    settings: dict[str, Any]
    summary: dict[str, Any]


def run(options: Options) -> int:
    """Train and save; prints what came out. The exit code."""
    plan = _planned(options)
    options = replace(options, model=options.model or plan.defence.network or "gin")
    _refuse_early(options, plan)
    from flipproof import models
    from flipproof.classifiers.clean_edges import refuse_clean_edges

    graphs = options.source.load()
    parts = options.source.split(graphs)
    if plan.arguments.get("counts_only"):  # there is no epoch to choose: all are learnt from
        known = np.union1d(parts.train_indices, parts.validation_indices)
        parts = replace(parts, train_indices=known, validation_indices=known[:0])
    spec = _default_features(options.model, graphs) if options.features is None else options.features
    hook = load_features(spec)
    if hook.spec is None:
        raise InputError(
            f"--features must be one that a model folder can name; got {spec} (a function of your own works with "
            "flipproof.train, and with certify --model package.module:factory)"
        )
    if hook.reads_own and not options.trust_features:
        refuse_clean_edges(list(parts.train), graphs.feature_names)
    if graphs.attributes or graphs.remarks:
        note(graphs.describe_features(), quiet=options.silent)
    started = time.perf_counter()
    try:
        learn = _line if options.model == _BLIND else _trained
        outcome = learn(graphs, parts, hook, options, plan)
    except KeyboardInterrupt:
        kept = "what is finished is kept" if options.checkpoint.exists() else "no epoch was finished"
        note(f"stopped; {kept}. continue with: {options.again}")
        return 130
    models.save(
        outcome.model,
        options.out,
        defence={"name": plan.defence.name, **plan.settings},
        features=hook.spec,
        **options.source.metadata(graphs),
        training=outcome.settings,
    )
    if "epochs" in outcome.summary:
        options.checkpoint.unlink(missing_ok=True)
    summary: dict[str, Any] = {
        "model": str(options.out),
        "network": options.model,
        "data": graphs.name,
        "features": hook.spec,
        "attributes": [asdict(attribute) for attribute in graphs.attributes],
        "defence": {"name": plan.defence.name, **plan.settings},
        "graphs": {
            "train": len(parts.train_indices),
            "validation": len(parts.validation_indices),
            "test": len(parts.test_indices),
        },
        **outcome.summary,
    }
    summary.setdefault("seconds", round(time.perf_counter() - started, 3))
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        _print_summary(summary, options, plan)
    return 0


def _planned(options: Options) -> _Plan:
    asked, values = options.defence, options.defence_values
    if asked is None and options.model.partition(":")[0] == _BLIND:
        asked, values = _BLIND, unused(values, quiet=options.silent)
    for known in spaces():
        if asked is None and known.network == options.model and not values:
            asked = known.name
    defence = given_defence(values, asked, "training_options") or space("none")
    settings = defence.checked(own_values(defence, values, "settings"))
    extra = {entry.name: values.get(entry.name, entry.default) for entry in defence.training_options}
    return _Plan(defence, settings, defence.training(settings) | extra)


def _trained(graphs: Dataset, parts: Split, hook: NodeFeatures, options: Options, plan: _Plan) -> _Outcome:
    from flipproof import training

    width = int(hook.of(parts.train[0]).shape[1])
    if options.model == _LOCAL and hook.spec == "constant":
        width = 0
    network = _network(options, plan, width, graphs)
    finished = training.finished_epochs(options.checkpoint)
    arguments: dict[str, Any] = {
        "features": hook,
        **{**options.training, **plan.arguments, **options.given_training},
        "validation": parts.validation if len(parts.validation) else None,
        "seed": options.seed,
        "checkpoint": options.checkpoint,
    }
    at_once = bool(arguments.get("counts_only"))
    if at_once:
        note("learning numbers of nodes and edges: a moment, without epochs", quiet=options.silent)
    quiet = options.silent or at_once
    with progress("training", options.epochs, unit="epochs", quiet=quiet, done=finished) as advance:

        def watch(done: int, of: int) -> None:
            if done == finished + 1 > 1:  # the checkpoint was this training's
                note(f"continuing {options.checkpoint}: {finished} of {of} epochs were done", quiet=options.silent)
            advance(1)

        result = training.train_for(network, parts.train, **arguments, progress=watch)
    final = result.final
    summary: dict[str, Any] = {
        **(
            {"chosen": "by numbers of nodes and edges"}
            if at_once
            else {"epochs": result.epochs, "best_epoch": result.best_epoch}
        ),
        "train_accuracy": final.accuracy,
        "validation_accuracy": final.validation_accuracy,
        "seconds": round(result.seconds, 3),
    }
    return _Outcome(network, result.settings, summary)


def _line(graphs: Dataset, parts: Split, hook: NodeFeatures, options: Options, plan: _Plan) -> _Outcome:
    """The strong edge-blind line: what its defence fits."""
    validation = parts.validation if len(parts.validation) else None
    model, fit = fit_edge_blind(parts.train, features=hook, validation=validation, seed=options.seed)
    summary = {
        "chosen": fit.kind,
        "compared": dict(fit.compared),
        "train_accuracy": fit.accuracy,
        "validation_accuracy": fit.validation_accuracy,
    }
    return _Outcome(model, {"seed": options.seed, "chosen": fit.kind}, summary)


def _refuse_early(options: Options, plan: _Plan) -> None:
    """What can be told before torch is loaded."""
    checked_seed(options.seed)
    out = options.out
    if out.exists() and not (out / "config.json").is_file():
        raise InputError(f"--out {out} exists and is not a model folder (choose another name)")
    if out.exists() and not options.replace:
        raise InputError(f"--out {out} holds a model already (choose another folder, or add --replace)")
    needed = plan.defence.network
    if needed is not None and options.model != needed:
        raise InputError(f"{plan.defence.name} needs --model {needed}; got {options.model} (leave --model out)")
    noise = plan.arguments.get("noise")
    if options.corrected and (options.model != "gin" or noise is None):
        raise InputError(
            f"--corrected is for gin under noise; got --model {options.model} and "
            f"{'no noise' if noise is None else noise} (leave it out, or train gin with --keep 0.9)"
        )
    if options.model == _BLIND and (
        options.hidden is not None or options.consistency or options.objective != "samples"
    ):
        raise InputError(
            f"--hidden, --consistency and --objective belong to networks; got one for {options.model} (leave them out)"
        )


def _default_features(model: str, graphs: Dataset) -> str:
    if graphs.num_node_features:
        return "own"
    return "constant" if model == _LOCAL or model.startswith(_BLIND) else "degree"


def _network(options: Options, plan: _Plan, in_features: int, graphs: Dataset) -> NamedNetwork:
    from flipproof import models

    kind, _, blinded = options.model.partition(":")
    name = blinded if kind == _BLIND else options.model
    if name not in models.NAMES or name == _BLIND:
        raise InputError(
            f"--model must be one of {', '.join(models.NAMES)} (edge-blind:gin to blind a network); got "
            f"{options.model!r} (train a network of your own in Python, and certify it with --model package.module:factory)"
        )
    config: dict[str, Any] = {"name": name, "in_features": in_features, "num_classes": graphs.num_classes}
    config |= {key: value for key in ("hidden", "layers", "members") if (value := getattr(options, key)) is not None}
    if options.corrected:
        noise = plan.arguments["noise"]
        config["noise"] = [noise.p_add, noise.p_remove]
    return models.build({"name": _BLIND, "network": config} if kind == _BLIND else config, seed=options.seed)


def _print_summary(summary: dict[str, Any], options: Options, plan: _Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, title=f"{options.model} on {summary['data']}")
    sizes = summary["graphs"]
    chosen = "the epoch" if "epochs" in summary else "with"
    rows = {
        "graphs": f"{sizes['train']} to train, {sizes['validation']} to choose {chosen}, {sizes['test']} to certify",
        "trained for": f"{plan.defence.name}: {plan.words}",
        "features": summary["features"],
        **(
            {"epoch kept": f"{summary['best_epoch'] + 1} of {summary['epochs']}"}
            if "epochs" in summary
            else {"chosen": summary["chosen"]}
        ),
        "accuracy in training": f"{summary['train_accuracy']:.3f}",
        "accuracy on validation": "-"
        if summary["validation_accuracy"] is None
        else f"{summary['validation_accuracy']:.3f}",
        "seconds": f"{summary['seconds']:.1f}",
    }
    for key, value in rows.items():
        table.add_row(key, value)
    Console(file=sys.stdout).print(table)
    print_lines(
        [f"written: {options.out}", f"next: flipproof certify --model {shlex.quote(str(options.out))} --out RUN"]
    )
