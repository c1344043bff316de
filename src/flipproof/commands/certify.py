"""``flipproof certify``: the votes and certificates of a data set's test graphs, in a folder that can be continued."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.certificates.sequential import Plan, Sequential
from flipproof.commands.progress import OutputOptions, note, progress
from flipproof.commands.sources import (
    LoadedModel,
    features_identity,
    fingerprint,
    load_features,
    load_model,
    load_noise,
    model_data,
    naming_the_graph,
    part_indices,
)
from flipproof.commands.summary import print_summary, summarise
from flipproof.commands.voting import VotingJob, chosen_defence, load_groups, voting_settings
from flipproof.datasets import Dataset
from flipproof.engines import cores, local_engine, one_thread, ray_cluster
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, EdgeNoise, checked_seed
from flipproof.runs.folder import Run, locked
from flipproof.defences.asking import BlockTask, Engine, Task
from flipproof.defences.smoothing import SampleWork, SmoothedClassifier
from flipproof.runs.table import Row, derive_row, write_table
from flipproof.certificates.sampled_votes import Votes

if TYPE_CHECKING:
    from flipproof.classifiers import Classifier
    from flipproof.defences.voting import VotingClassifier

__all__ = ["ENGINES", "CertifyOptions", "asked_samples", "certify"]

ENGINES = ("local", "ray")
_TINY = 4  # blocks that are not worth more than this process


def asked_samples(
    samples: str, *, max_samples: int | None, target_radius: int | None, precision: float | None
) -> int | Sequential:
    """What ``--samples`` and the options that go with ``auto`` ask for."""
    if samples == "auto":
        most = {} if max_samples is None else {"max_samples": max_samples}
        return Sequential(**most, target_radius=target_radius, precision=precision)
    given = {"--max-samples": max_samples, "--target-radius": target_radius, "--precision": precision}
    for option, value in given.items():
        if value is not None:
            raise InputError(f"{option} {value} goes with --samples auto; got --samples {samples} (ask for auto)")
    try:
        return int(samples)
    except ValueError:
        raise InputError(
            f"--samples must be an integer of at least 1, or auto; got {samples!r} (for instance 10000)"
        ) from None


@dataclass(frozen=True)
class CertifyOptions(OutputOptions):
    """What ``flipproof certify`` was asked for; ``None`` where the model folder knows."""

    model: str
    out: Path
    data: str | None
    root: str | None
    download: bool
    keep: float | None
    add: float | None
    remove: float | None
    features: str | None
    classes: int | None
    part: str
    graphs: int | None
    samples: int | Sequential
    alpha: float
    simultaneous: bool
    method: str
    seed: int
    defence: str | None
    groups: int | None
    edge_blind: str | None
    workers: int | None
    engine: str
    address: str | None
    data_seed: int | None
    split_seed: int | None
    trust_features: bool
    memory: str


@dataclass(frozen=True, eq=False)
class _Job:
    """Everything found and checked; nothing sampled yet."""

    smooth: SmoothedClassifier
    graphs: dict[int, Graph]
    noise: EdgeNoise
    plan: Plan
    seed: int
    settings: dict[str, Any]
    own_model: bool
    edge_blind_accuracy: float | None


@dataclass(frozen=True, eq=False)
class _Work(SampleWork):
    """Sampling with a sentence for what a user's own model may raise."""

    own_model: bool

    def __call__(self, task: Task) -> Any:
        if not isinstance(task, BlockTask):
            return super().__call__(task)
        with naming_the_graph(task.index, own_model=self.own_model):
            return super().__call__(task)


@dataclass(frozen=True, eq=False)
class _RowWork:
    """Deriving a graph's row of the table."""

    settings: dict[str, Any]

    def __call__(self, task: tuple[int, Votes]) -> Row:
        return derive_row(*task, self.settings)


def certify(options: CertifyOptions) -> int:
    """Sample what is missing, derive the certificates, print the summary. The exit code."""
    Plan.of(options.samples, alpha=options.alpha, method=options.method)
    checked_seed(options.seed)
    _check_engine(options)
    checked_memory(options.memory)
    job = _prepared(options)
    try:
        with locked(options.out), _cluster(options) as cluster:
            run = Run(options.out, job.settings)
            if isinstance(job, VotingJob):
                job.sample(run, options)
                rows = job.rows(run)
            else:
                _sample(run, job, options, cluster)
                rows = _derive(run, job, options, cluster)
            write_table(run, rows)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}")
        return 130
    summary = {"run": str(options.out), **summarise(rows, job.settings, edge_blind=job.edge_blind_accuracy)}
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        print_summary(summary)
    return 0


def _prepared(options: CertifyOptions) -> _Job | VotingJob:
    from flipproof.defences.voting import VotingClassifier

    loaded = load_model(options.model)
    defence = chosen_defence(loaded.saved, options, options.defence)
    source, data = model_data(
        loaded.saved,
        data=options.data,
        root=options.root,
        download=options.download,
        data_seed=options.data_seed,
        split_seed=options.split_seed,
    )
    parts = source.split(data)
    indices = part_indices(parts, options.part, options.graphs)
    stored = None if loaded.saved is None else loaded.saved.metadata.get("features")
    features = options.features or (stored if isinstance(stored, str) else None)
    wrapped: dict[str, Any] = {
        "num_classes": _num_classes(loaded, options.classes, data),
        "features": load_features(features),
        "trust_features": options.trust_features,
    }
    defended: SmoothedClassifier | VotingClassifier
    if defence == "voting":
        defended = VotingClassifier(loaded.model, load_groups(loaded.saved, options.groups), **wrapped)
    else:
        blind = loaded.name == "edge-blind"
        noise = load_noise(loaded.saved, options.keep, options.add, options.remove, edge_blind=blind)
        defended = SmoothedClassifier(loaded.model, noise, memory=checked_memory(options.memory), **wrapped)
    graphs = {index: data[index] for index in indices}
    defended.check(list(graphs.values()))
    if loaded.saved is not None and options.part == "test":
        _warn_of_training_graphs(loaded, source.split_seed, data, options)
    settings = {
        "command": "certify",
        "data": data.name,
        "data_sha256": fingerprint(data),
        "class_names": list(data.class_names),
        "part": options.part,
        "split_seed": source.split_seed,
        "graphs": indices,
        "model": loaded.name,
        "model_sha256": loaded.identity,
        "features": features_identity(features),
        "num_classes": defended.num_classes,
        "edge_blind": defended.classifier.edge_blind,
    }
    own_model, blind_accuracy = loaded.saved is None, None
    if options.edge_blind is not None:
        other = load_model(options.edge_blind)
        blind_accuracy = _edge_blind_accuracy(other, graphs.values())
        if options.part == "test":
            _warn_of_training_graphs(other, source.split_seed, data, options)
    if isinstance(defended, VotingClassifier):
        settings |= voting_settings(defended)
        settings["batches"] = _batches(defended.classifier, defended.density, graphs.values())
        return VotingJob(defended, graphs, settings, own_model, blind_accuracy)
    noise, samples = defended.noise, 1 if defended.classifier.edge_blind else options.samples
    alpha = options.alpha / (len(graphs) if options.simultaneous else 1)
    plan = Plan.of(samples, alpha=alpha, method=options.method)
    settings |= {
        "defence": "smoothing",
        "p_add": noise.p_add,
        "p_remove": noise.p_remove,
        "noise": [noise.add_threshold, noise.remove_threshold],
        "samples": "auto" if isinstance(options.samples, Sequential) else options.samples,
        "sequential": plan.to_dict() or None,
        "votes": plan.most,
        "seed": options.seed,
        "alpha": options.alpha,
        "simultaneous": options.simultaneous,
        "method": options.method,
        "memory": defended.classifier.memory,
        "batches": _batches(defended.classifier, noise, graphs.values()),
    }
    return _Job(defended, graphs, noise, plan, options.seed, settings, own_model, blind_accuracy)


def _edge_blind_accuracy(loaded: LoadedModel, graphs: Collection[Graph]) -> float:
    """The line to beat: the share of graphs that a model without edges gets right, at every radius."""
    if loaded.name != "edge-blind" or loaded.saved is None:
        raise InputError(
            f"--edge-blind must be a folder of train --model edge-blind; it holds {loaded.name} (train one)"
        )
    features = load_features(loaded.saved.metadata.get("features"))
    smooth = SmoothedClassifier(loaded.model, EdgeNoise(add=0, remove=0), features=features)
    found = smooth.certify_all(graphs)
    return sum(one.label == graph.label for one, graph in zip(found, graphs, strict=True)) / len(graphs)


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


def _warn_of_training_graphs(loaded: LoadedModel, split_seed: int, data: Dataset, options: CertifyOptions) -> None:
    """Another split than the stored one can only be asked for; it is then the user's to know what the model has seen."""
    stored = {} if loaded.saved is None else loaded.saved.metadata
    if stored.get("data_sha256") not in (None, fingerprint(data)):
        what = (
            "these are not the data that the model was trained on, so that a test graph may have been a training graph"
        )
        remedy = "leave --data and --data-seed out to certify graphs that it has not seen"
    elif stored.get("split_seed", split_seed) != split_seed:
        what = (
            f"the model was trained with split seed {stored['split_seed']}, so that many of the test graphs of split seed "
            f"{split_seed} were training graphs"
        )
        remedy = "leave --split-seed out to certify graphs that it has not seen"
    else:
        return
    note(f"warning: {what} ({remedy})", quiet=options.quiet)


def _num_classes(loaded: LoadedModel, asked: int | None, data: Dataset) -> int:
    own = getattr(loaded.model, "num_classes", None)
    number = asked if asked is not None else own if isinstance(own, int) else data.num_classes
    if loaded.saved is not None and number != own:
        raise InputError(f"--classes must be the model's own number of classes, {own}; got {number} (leave it out)")
    if number < data.num_classes:
        raise InputError(
            f"the model has {number} classes and the data {data.name} have {data.num_classes} (certify data with the model's "
            "classes, or give --classes)"
        )
    return int(number)


def _batches(base: Classifier, noise: EdgeNoise, graphs: Any) -> dict[str, int]:
    """How samples reach the model, and how many at once: part of what was asked, since rounding can depend on it."""
    kinds: Counter[str] = Counter()
    for graph in graphs:
        classifier = base.suited(graph, noise)
        path = f"{classifier.path} ({classifier.remark})" if classifier.remark else classifier.path
        kinds[f"{path}, {classifier.batch_size(graph, noise)} at a time"] += 1
    return dict(sorted(kinds.items()))


def _check_engine(options: CertifyOptions) -> None:
    if options.engine not in ENGINES:
        raise InputError(f"--engine must be one of {', '.join(ENGINES)}; got {options.engine!r} (local is the default)")
    if options.address is not None and options.engine != "ray":
        raise InputError(f"--address is a Ray cluster's; got --engine {options.engine} (add --engine ray)")
    if options.engine == "ray":
        ray_cluster.installed()


@contextmanager
def _cluster(options: CertifyOptions) -> Iterator[Engine | None]:
    """The Ray cluster, where one is asked for."""
    if options.engine == "ray":
        with ray_cluster.RayCluster(options.address, workers=options.workers) as cluster:
            note(f"sampling on {cluster}", quiet=options.silent)
            yield cluster
    else:
        yield None


def _local(job: _Job, options: CertifyOptions, blocks: int) -> Engine:
    """The cores of this machine, as many as asked for and as there is work for."""
    workers = options.workers or (1 if blocks < _TINY else cores())
    engine, sentence = local_engine(workers, job.smooth.model)
    if sentence:
        note(sentence, quiet=options.silent)
    return engine


def _sample(run: Run, job: _Job, options: CertifyOptions, cluster: Engine | None) -> None:
    complaints = run.tidy()
    plan = job.plan
    missing, broken = run.pending(job.graphs, noise=job.noise, samples=plan.looks, seed=job.seed)
    for complaint in complaints + broken:
        note(complaint, quiet=options.quiet)
    finished = len(job.graphs) - len(missing)
    if finished and missing:
        note(
            f"continuing {run.folder}: {finished} of {len(job.graphs)} graphs are done",
            quiet=options.silent,
        )
    if not missing:
        return
    # how many samples "auto" will take is not known before: graphs are counted
    each, unit = (plan.most, "samples") if plan.goal is None else (1, "graphs")
    graphs = {index: job.graphs[index] for index in missing}
    store = run.parts(
        graphs,
        noise=job.noise,
        samples=plan.most,
        seed=job.seed,
        complain=lambda message: note(message, quiet=options.quiet),
    )
    engine = cluster or _local(job, options, len(missing) * -(-plan.most // BLOCK))
    total, done = each * len(job.graphs), each * finished
    with one_thread(), progress("sampling", total, unit=unit, quiet=options.silent, done=done) as advance:
        sampled = job.smooth.sample_all(
            graphs,
            plan,
            seed=job.seed,
            engine=engine,
            work=_Work(job.smooth, plan, job.seed, job.own_model),
            store=store,
            certified=False,
            advance=advance if plan.goal is None else lambda samples: None,
        )
        for index, votes, _ in sampled:
            run.save(index, votes)
            if plan.goal is not None:
                advance(1)


def _derive(run: Run, job: _Job, options: CertifyOptions, cluster: Engine | None) -> list[Row]:
    rows: dict[int, Row] = {}
    engine = cluster or _local(job, options, len(job.graphs))
    with one_thread(), progress("certifying", len(job.graphs), unit="graphs", quiet=options.silent) as advance:
        tasks = ((index, run.load(index)) for index in sorted(job.graphs))
        for (index, _), row in engine.run(_RowWork(run.settings), tasks):
            rows[index] = row
            advance(1)
    return [rows[index] for index in sorted(rows)]
