"""``flipproof train``: a base classifier, with all that ``certify`` needs to know beside its weights."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.commands.progress import OutputOptions, note, progress
from flipproof.commands.sources import DataSource, load_features
from flipproof.datasets import Dataset, Split
from flipproof.errors import InputError
from flipproof.grouping import EdgeGroups
from flipproof.noise import EdgeNoise, checked_seed

if TYPE_CHECKING:
    from flipproof.features import NodeFeatures
    from flipproof.models import WLSVM, GraphNetwork

__all__ = ["TrainOptions", "train"]

_BLIND, _KERNEL = "edge-blind", "wl-svm"


@dataclass(frozen=True)
class TrainOptions(OutputOptions):
    """What ``flipproof train`` was asked for."""

    source: DataSource
    model: str
    out: Path
    noise: EdgeNoise | None
    groups: int | None
    renumber: bool
    features: str | None
    epochs: int
    seed: int
    learning_rate: float
    batch_size: int
    copies: int | None
    objective: str
    corrected: bool
    consistency: float
    class_weights: bool
    hidden: int | None
    layers: int | None
    replace: bool
    trust_features: bool

    @property
    def checkpoint(self) -> Path:
        """The training under way."""
        return self.out.with_name(f"{self.out.name}.part")


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A trained model and what its training says."""

    model: GraphNetwork | WLSVM
    settings: dict[str, Any]
    summary: dict[str, Any]


def train(options: TrainOptions) -> int:
    """Train and save; prints what came out. The exit code."""
    _refuse_early(options)
    from flipproof import models
    from flipproof.features import refuse_clean_degrees

    graphs = options.source.load()
    parts = options.source.split(graphs)
    spec = _default_features(options.model, graphs) if options.features is None else options.features
    hook = load_features(spec)
    if hook.spec is None:
        raise InputError(
            f"--features must be one that a model folder can name; got {spec} (a function of your own works with "
            "flipproof.train, and with certify --model package.module:factory)"
        )
    if hook.reads_own and not options.trust_features:
        refuse_clean_degrees(list(parts.train))
    started = time.perf_counter()
    try:
        outcome = (_fitted if options.model == _KERNEL else _trained)(graphs, parts, hook, options)
    except KeyboardInterrupt:
        kept = "what is finished is kept" if options.checkpoint.exists() else "no epoch was finished"
        note(f"stopped; {kept}. continue with: {options.again}")
        return 130
    models.save(
        outcome.model,
        options.out,
        noise=options.noise,
        groups=options.groups,
        features=hook.spec,
        **options.source.metadata(graphs),
        training=outcome.settings,
    )
    if options.model != _KERNEL:
        options.checkpoint.unlink(missing_ok=True)
    summary: dict[str, Any] = {
        "model": str(options.out),
        "network": options.model,
        "data": graphs.name,
        "features": hook.spec,
        "noise": None if options.noise is None else {"p_add": options.noise.p_add, "p_remove": options.noise.p_remove},
        "groups": options.groups,
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
        _print_summary(summary, options)
    return 0


def _trained(graphs: Dataset, parts: Split, hook: NodeFeatures, options: TrainOptions) -> _Outcome:
    from flipproof import training
    from flipproof.training import finished_epochs

    network = _network(options, int(hook.of(parts.train[0]).shape[1]), graphs.num_classes)
    finished = finished_epochs(options.checkpoint)
    arguments: dict[str, Any] = {
        "noise": options.noise,
        "groups": options.groups,
        "renumber": options.renumber,
        "features": hook,
        "epochs": options.epochs,
        "learning_rate": options.learning_rate,
        "batch_size": options.batch_size,
        "copies": 1 if options.copies is None else options.copies,
        "objective": options.objective,
        "consistency": options.consistency,
        "class_weights": options.class_weights,
        "validation": parts.validation if len(parts.validation) else None,
        "seed": options.seed,
        "checkpoint": options.checkpoint,
    }
    with progress("training", options.epochs, unit="epochs", quiet=options.silent, done=finished) as advance:

        def watch(done: int, of: int) -> None:
            if done == finished + 1 > 1:  # the checkpoint was this training's
                note(f"continuing {options.checkpoint}: {finished} of {of} epochs were done", quiet=options.silent)
            advance(1)

        result = training.train(network, parts.train, **arguments, progress=watch)
    final = result.final
    summary = {
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "train_accuracy": final.accuracy,
        "validation_accuracy": final.validation_accuracy,
        "seconds": round(result.seconds, 3),
    }
    return _Outcome(network, result.settings, summary)


def _fitted(graphs: Dataset, parts: Split, hook: NodeFeatures, options: TrainOptions) -> _Outcome:
    from flipproof.models import WLSVM

    depth = {} if options.layers is None else {"iterations": options.layers}
    copies = 8 if options.copies is None else options.copies
    settings: dict[str, Any] = {"copies": copies, "class_weights": options.class_weights, "seed": options.seed}
    model = WLSVM(graphs.num_classes, **depth)
    note("fitting: a moment, without epochs", quiet=options.silent)
    fit = model.fit(
        parts.train,
        noise=options.noise,
        features=hook,
        validation=parts.validation if len(parts.validation) else None,
        **settings,
    )
    summary = {
        "patterns": fit.patterns,
        "cost": fit.cost,
        "train_accuracy": fit.accuracy,
        "validation_accuracy": fit.validation_accuracy,
    }
    return _Outcome(model, settings | {"cost": fit.cost}, summary)


def _refuse_early(options: TrainOptions) -> None:
    """What can be told before torch is loaded."""
    checked_seed(options.seed)
    if options.renumber and options.groups is None:
        raise InputError("--renumber is about the hash of node numbers; got no --groups (for instance --groups 3)")
    if options.groups is not None:
        EdgeGroups(options.groups)
        if options.noise is not None:
            raise InputError(
                f"give either noise, for smoothing, or --groups, for voting; got {options.noise} and --groups "
                f"{options.groups} (leave one of them out)"
            )
    out = options.out
    if out.exists() and not (out / "config.json").is_file():
        raise InputError(f"--out {out} exists and is not a model folder (choose another name)")
    if out.exists() and not options.replace:
        raise InputError(f"--out {out} holds a model already (choose another folder, or add --replace)")
    if options.corrected and (options.model != "gin" or options.noise is None):
        raise InputError(
            f"--corrected is for gin under noise; got --model {options.model} and "
            f"{'no noise' if options.noise is None else options.noise} (leave it out, or train gin with --keep 0.9)"
        )
    if options.model == _KERNEL and (
        options.hidden is not None
        or options.consistency
        or options.objective != "samples"
        or options.groups is not None
    ):
        raise InputError(
            "--hidden, --consistency, --objective and --groups belong to networks; got one for wl-svm (leave them out)"
        )


def _default_features(model: str, graphs: Dataset) -> str:
    if graphs.num_node_features:
        return "own"
    # the kernel counts degrees by itself, in its first iteration
    return "constant" if model == _KERNEL or model.startswith(_BLIND) else "degree"


def _network(options: TrainOptions, in_features: int, num_classes: int) -> GraphNetwork:
    from flipproof import models

    kind, _, blinded = options.model.partition(":")
    name = (blinded or "gin") if kind == _BLIND else options.model
    if name not in models.NAMES or name == _BLIND:
        raise InputError(
            f"--model must be one of {', '.join(models.NAMES)} (edge-blind:gat for another network than gin), {_KERNEL}; got "
            f"{options.model!r} (train a network of your own in Python, and certify it with --model package.module:factory)"
        )
    config: dict[str, Any] = {"name": name, "in_features": in_features, "num_classes": num_classes}
    config |= {key: value for key in ("hidden", "layers") if (value := getattr(options, key)) is not None}
    if options.corrected and options.noise is not None:
        config["noise"] = [options.noise.p_add, options.noise.p_remove]
    return models.build({"name": _BLIND, "network": config} if kind == _BLIND else config, seed=options.seed)


def _print_summary(summary: dict[str, Any], options: TrainOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    seen = "the graphs as they are" if options.noise is None else str(options.noise)
    if options.groups is not None:
        seen = f"sub-graphs of {options.groups} groups"
    table = Table(show_header=False, title=f"{options.model} on {summary['data']}")
    sizes, chosen = summary["graphs"], "epoch" if "epochs" in summary else "cost"
    rows = {
        "graphs": f"{sizes['train']} to train, {sizes['validation']} to choose the {chosen}, {sizes['test']} to certify",
        "trained on": seen,
        "features": summary["features"],
        **(
            {"epoch kept": f"{summary['best_epoch'] + 1} of {summary['epochs']}"}
            if "epochs" in summary
            else {"subtree patterns": f"{summary['patterns']:,}", "cost (C)": f"{summary['cost']:g}"}
        ),
        "accuracy in training": f"{summary['train_accuracy']:.3f}",
        "accuracy on validation": "-"
        if summary["validation_accuracy"] is None
        else f"{summary['validation_accuracy']:.3f}",
        "seconds": f"{summary['seconds']:.1f}",
    }
    for key, value in rows.items():
        table.add_row(key, value)
    console = Console(file=sys.stdout)
    console.print(table)
    console.print(f"written: {options.out}", soft_wrap=True, markup=False)
    console.print(f"next: flipproof certify --model {options.out} --out RUN", soft_wrap=True, markup=False)
