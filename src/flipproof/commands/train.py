"""``flipproof train``: a base classifier, with all that ``certify`` needs to know beside its weights."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.commands.progress import note, progress
from flipproof.commands.sources import DataSource, load_features
from flipproof.datasets import Dataset, Split
from flipproof.errors import InputError
from flipproof.grouping import EdgeGroups
from flipproof.noise import EdgeNoise, checked_seed

if TYPE_CHECKING:
    from flipproof.features import NodeFeatures
    from flipproof.models import GraphNetwork
    from flipproof.training import TrainingResult

__all__ = ["TrainOptions", "train"]


@dataclass(frozen=True)
class TrainOptions:
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
    copies: int
    consistency: float
    class_weights: bool
    hidden: int | None
    layers: int | None
    replace: bool
    trust_features: bool
    as_json: bool
    quiet: bool


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
    network = _network(options, int(hook.of(parts.train[0]).shape[1]), graphs.num_classes)
    try:
        result = _trained(network, parts, hook, options)
    except KeyboardInterrupt:
        note("stopped; no model is written (training starts from the beginning again)")
        return 130
    final = result.final
    models.save(
        network,
        options.out,
        noise=options.noise,
        groups=options.groups,
        features=hook.spec,
        **options.source.metadata(graphs),
        training=result.settings,
    )
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
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "train_accuracy": final.accuracy,
        "validation_accuracy": final.validation_accuracy,
        "seconds": round(result.seconds, 3),
    }
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        _print_summary(summary, options)
    return 0


def _trained(network: GraphNetwork, parts: Split, hook: NodeFeatures, options: TrainOptions) -> TrainingResult:
    from flipproof import training

    with progress("training", options.epochs, unit="epochs", quiet=options.quiet or options.as_json) as advance:
        return training.train(
            network,
            parts.train,
            noise=options.noise,
            groups=options.groups,
            renumber=options.renumber,
            features=hook,
            epochs=options.epochs,
            learning_rate=options.learning_rate,
            batch_size=options.batch_size,
            copies=options.copies,
            consistency=options.consistency,
            class_weights=options.class_weights,
            validation=parts.validation if len(parts.validation) else None,
            seed=options.seed,
            progress=lambda done, of: advance(1),
        )


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


def _default_features(model: str, graphs: Dataset) -> str:
    if graphs.num_node_features:
        return "own"
    return "constant" if model == "edge-blind" else "degree"


def _network(options: TrainOptions, in_features: int, num_classes: int) -> GraphNetwork:
    from flipproof import models

    if options.model not in models.NAMES:
        raise InputError(
            f"--model must be one of {', '.join(models.NAMES)}; got {options.model!r} (train a network of your own in Python, "
            "and certify it with --model package.module:factory)"
        )
    blind = options.model == "edge-blind"
    config: dict[str, Any] = {
        "name": "gin" if blind else options.model,
        "in_features": in_features,
        "num_classes": num_classes,
    }
    config |= {key: value for key in ("hidden", "layers") if (value := getattr(options, key)) is not None}
    return models.build({"name": "edge-blind", "network": config} if blind else config, seed=options.seed)


def _print_summary(summary: dict[str, Any], options: TrainOptions) -> None:
    from rich.console import Console
    from rich.table import Table

    seen = "the graphs as they are" if options.noise is None else str(options.noise)
    if options.groups is not None:
        seen = f"sub-graphs of {options.groups} groups"
    table = Table(show_header=False, title=f"{options.model} on {summary['data']}")
    sizes = summary["graphs"]
    rows = {
        "graphs": f"{sizes['train']} to train, {sizes['validation']} to choose the epoch, {sizes['test']} to certify",
        "trained on": seen,
        "features": summary["features"],
        "epoch kept": f"{summary['best_epoch'] + 1} of {summary['epochs']}",
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
