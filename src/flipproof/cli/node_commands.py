"""``train``, ``certify`` and ``verify`` for single nodes: ``--task nodes``, on a citation network."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flipproof.cli.options import Result, checked_memory
from flipproof.datasets.node_task import NodeSplit, NodeTask, citation, split_nodes
from flipproof.defences.defence import DefendedClassifier, described
from flipproof.defences.node_smoothing import NOISE_NAMES, NodeSampling, NodeSmoothing, node_defence
from flipproof.errors import InputError
from flipproof.models.loading import LoadedModel, load_features
from flipproof.progress import note, progress
from flipproof.runs.node_run import NodeSettings, certify_nodes_into, fingerprint, problems_of_node_run, summary_of
from flipproof.runs.run_folder import written_run

if TYPE_CHECKING:
    from flipproof.cli.certify_command import CertifyOptions
    from flipproof.cli.train_command import TrainOptions

TASKS = ("graphs", "nodes")
_ASKING = ("samples", "alpha", "simultaneous", "seed")
_WORDS = {
    "radius": "flips of edges",
    "adds_radius": "added edges",
    "removes_radius": "removed edges",
    "feature_radius": "changed features",
}


def checked_task(task: str | None) -> str | None:
    if task not in (None, *TASKS):
        raise InputError(f"--task must be graphs or nodes; got {task!r} (graphs is the default)")
    return task


def _defence(values: dict[str, Any]) -> NodeSmoothing | None:
    """The noise that was typed; refuses what has no part in it."""
    odd = sorted(values.keys() - {*NOISE_NAMES, *_ASKING, "method"})
    if odd:
        raise InputError(f"--{odd[0].replace('_', '-')} has no part in certificates of nodes (leave it out)")
    return node_defence(values)


def train_on_nodes(options: TrainOptions) -> Result:
    """Train a GCN on the nodes of a citation network, and save it."""
    from flipproof import models, training

    if options.model not in ("", "gcn", "node-gcn"):
        raise InputError(f"--task nodes trains node-gcn; got --model {options.model} (leave --model out)")
    if options.out.exists() and (not (options.out / "config.json").is_file() or not options.replace):
        raise InputError(f"--out {options.out} exists (choose another folder, or add --replace to replace a model)")
    if options.corrected or options.objective != "samples":
        raise InputError("--corrected and --objective are for graphs (leave them out with --task nodes)")
    defence = _defence(options.defence_values)
    task = citation(options.data)
    parts, hook = split_nodes(task, seed=options.split_seed), load_features(options.features)
    width = (
        int(hook.of(task.graph).shape[1])
        if hook is not None
        else 1
        if task.graph.node_features is None
        else task.graph.node_features.shape[1]
    )
    shape = {key: value for key in ("hidden", "layers") if (value := getattr(options, key)) is not None}
    network = models.NodeGCN(width, task.num_classes, **shape, seed=options.seed)
    rate = {} if options.learning_rate is None else {"learning_rate": options.learning_rate}
    with progress("training", options.epochs, unit="epochs", quiet=options.silent) as advance:
        result = training.train_nodes(
            network,
            task,
            split=parts,
            noise=None if defence is None else defence.noise,
            feature_noise=None if defence is None else defence.feature_noise,
            features=hook,
            epochs=options.epochs,
            copies=options.copies or 1,
            seed=options.seed,
            checkpoint=options.checkpoint,
            progress=lambda done, of: advance(1),
            **rate,
        )
    metadata: dict[str, Any] = {"task": "nodes", "data": str(Path(options.data).expanduser().resolve())}
    metadata |= {
        "data_sha256": fingerprint(task),
        "split_seed": options.split_seed,
        "class_names": list(task.class_names),
    }
    if defence is not None:
        metadata["defence"] = described(defence)
    spec = None if hook is None else hook.spec
    models.save(network, options.out, features=spec, metadata=metadata | {"training": result.settings})
    options.checkpoint.unlink(missing_ok=True)
    final = result.final
    numbers = {part: len(getattr(parts, part)) for part in ("train", "validation", "test")}
    told = {"train_accuracy": final.accuracy, "validation_accuracy": final.validation_accuracy}
    summary = {"model": str(options.out), "task": "nodes", "data": task.name, "nodes": numbers, **told}
    summary |= {"epochs": result.epochs, "best_epoch": result.best_epoch, "seconds": round(result.seconds, 3)}
    lines = [
        f"{numbers['train']} nodes to train, {numbers['validation']} to choose the epoch, {numbers['test']} to certify",
        f"accuracy under noise: {final.accuracy:.3f} in training, {final.validation_accuracy:.3f} on validation",
        f"written: {options.out}",
        f"next: flipproof certify --model {shlex.quote(str(options.out))} --out RUN",
    ]
    return Result(summary, lines)


def is_for_nodes(loaded: LoadedModel, task: str | None) -> bool:
    """Whether nodes are to be certified; refuses a model of the other kind."""
    stored = loaded.metadata.get("task", "graphs")
    if loaded.saved is not None and task is not None and task != stored:
        raise InputError(
            f"--task {task} needs a model for {task}; {loaded.name} was trained for {stored} (leave --task out)"
        )
    return (stored if loaded.saved is not None else task) == "nodes"


def certify_nodes(options: CertifyOptions, loaded: LoadedModel) -> Result:
    """Votes on the nodes of one graph, a certificate for each node of a part, and a summary."""
    values, stored = options.defence_values, loaded.metadata
    defence = _defence(values) or node_defence(stored.get("defence") or {})
    if defence is None:
        raise InputError(
            "nothing says the noise of the certificates (give --add and --remove, or --bit-add and --bit-remove)"
        )
    if values.get("method", "votes") != "votes":
        raise InputError(f"--method must be votes for nodes; got {values['method']} (leave it out)")
    if options.data is None and "data" not in stored:
        raise InputError("the model does not say which data it belongs to (give --data)")
    task = citation(options.data or stored["data"])
    if options.data is None and stored.get("data_sha256") not in (None, fingerprint(task)):
        raise InputError(
            f"the data {stored['data']} are not those that the model was trained on: training nodes could be taken for test "
            "nodes (restore the data, or train again)"
        )
    seed = stored.get("split_seed", 0) if options.split_seed is None else options.split_seed
    nodes = _nodes_of(split_nodes(task, seed=int(seed)), task, options)
    features = options.features or stored.get("features")
    smooth = DefendedClassifier(
        loaded.model,
        defence,
        convention="nodes",
        num_classes=options.classes or task.num_classes,
        features=load_features(features),
        trust_features=options.trust_features,
        memory=checked_memory(options.memory),
    )
    asked = {"samples": 10_000, "alpha": 0.001, "simultaneous": False, "seed": 0} | {
        name: values[name] for name in _ASKING if name in values
    }
    settings = NodeSettings(
        data=task.name,
        data_sha256=fingerprint(task),
        class_names=list(task.class_names),
        part=options.part,
        split_seed=int(seed),
        nodes=nodes,
        model=loaded.name,
        model_sha256=loaded.identity,
        features=str(features or "own-or-degree"),
        noise={name: value for name, value in described(defence).items() if name != "name"},
        **asked,
    )
    request = NodeSampling(asked["samples"], asked["alpha"], seed=asked["seed"])
    smooth.check([task.graph], request)
    with written_run(options.out, settings) as run:
        note(f"asking about {asked['samples']:,} noisy copies of {task.graph.num_nodes:,} nodes", quiet=options.silent)
        rows = certify_nodes_into(run, task, lambda: defence.ask(smooth, task.graph, request))
    summary = {"run": str(options.out), **summary_of(rows, settings)}
    return Result(summary, _shown(summary))


def _nodes_of(parts: NodeSplit, task: NodeTask, options: CertifyOptions) -> list[int]:
    if options.part not in ("test", "validation", "train", "all"):
        raise InputError(
            f"--part must be one of test, validation, train, all; got {options.part!r} (test is the default)"
        )
    nodes = np.arange(task.graph.num_nodes) if options.part == "all" else getattr(parts, options.part)
    if options.graphs is not None and options.graphs < len(nodes):
        raise InputError("--graphs draws graphs; with --task nodes all nodes of --part are certified (leave it out)")
    return [int(node) for node in nodes]


def _shown(summary: dict[str, Any]) -> Iterator[Any]:
    from rich.table import Table

    shares = summary["certified_accuracy"]
    title = (
        f"{summary['model']} on {summary['data']}: certified accuracy of {summary['nodes']:,} {summary['part']} nodes"
    )
    table = Table("attacker", *(f"r = {r}" for r in next(iter(shares.values()))), title=title)
    for name, by_radius in shares.items():
        table.add_row(_WORDS[name], *(f"{share:.3f}" for share in by_radius.values()))
    yield table
    each = "all nodes at once" if summary["simultaneous"] else "each node"
    yield f"{summary['samples']:,} samples, alpha {summary['alpha']:g} for {each}, abstained on {summary['abstained']:,}"
    yield f"written: {summary['run']}"


def verify_nodes(folder: Path) -> Result:
    """Derive every certificate again and compare: exit code 0 if everything agrees; 1 if not."""
    problems = problems_of_node_run(folder)
    for problem in problems:
        note(problem)
    nodes = len(NodeSettings.read(folder).nodes)
    summary = {"run": str(folder), "nodes": nodes, "ok": not problems, "problems": problems}
    if problems:
        return Result(summary, code=1)
    return Result(summary, [f"verified: {nodes:,} certificates follow from the votes, and the noise can be made again"])
