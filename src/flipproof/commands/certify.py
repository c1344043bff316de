"""``flipproof certify``: the votes and certificates of a data set's test graphs, in a folder that can be continued."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.bounds import checked_alpha
from flipproof.certificates.certify import checked_method
from flipproof.commands.progress import note, progress
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
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise, checked_seed
from flipproof.runs import Block, Run, locked
from flipproof.tables import Row, derive_row, write_table
from flipproof.votes import checked_samples

if TYPE_CHECKING:
    from flipproof.classifiers import Classifier
    from flipproof.smoothing import SmoothedClassifier
    from flipproof.voting import VotingClassifier

__all__ = ["CertifyOptions", "certify"]


@dataclass(frozen=True)
class CertifyOptions:
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
    samples: int
    alpha: float
    method: str
    seed: int
    defence: str | None
    groups: int | None
    data_seed: int | None
    split_seed: int | None
    trust_features: bool
    as_json: bool
    quiet: bool
    again: str

    @property
    def silent(self) -> bool:
        """Whether progress stays hidden."""
        return self.quiet or self.as_json


@dataclass(frozen=True, eq=False)
class _Job:
    """Everything found and checked; nothing sampled yet."""

    smooth: SmoothedClassifier
    graphs: dict[int, Graph]
    noise: EdgeNoise
    votes: int
    seed: int
    settings: dict[str, Any]
    own_model: bool


def certify(options: CertifyOptions) -> int:
    """Sample what is missing, derive the certificates, print the summary. The exit code."""
    checked_alpha(options.alpha)
    checked_method(options.method)
    checked_samples(options.samples)
    checked_seed(options.seed)
    job = _prepared(options)
    try:
        with locked(options.out):
            run = Run(options.out, job.settings)
            if isinstance(job, VotingJob):
                job.sample(run, options)
                rows = job.rows(run)
            else:
                _sample(run, job, options)
                rows = _derive(run, job, options)
            write_table(run, rows)
    except KeyboardInterrupt:
        note(f"stopped; what is finished is kept. continue with: {options.again}")
        return 130
    summary = {"run": str(options.out), **summarise(rows, job.settings)}
    if options.as_json:
        print(json.dumps(summary, allow_nan=False))
    elif not options.quiet:
        print_summary(summary)
    return 0


def _prepared(options: CertifyOptions) -> _Job | VotingJob:
    from flipproof.smoothing import SmoothedClassifier
    from flipproof.voting import VotingClassifier

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
        defended = SmoothedClassifier(loaded.model, noise, **wrapped)
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
    own_model = loaded.saved is None
    if isinstance(defended, VotingClassifier):
        batches = _batches(defended.classifier, defended.density, graphs.values())
        return VotingJob(defended, graphs, settings | voting_settings(defended) | {"batches": batches}, own_model)
    noise, votes = defended.noise, 1 if defended.classifier.edge_blind else options.samples
    settings |= {
        "defence": "smoothing",
        "p_add": noise.p_add,
        "p_remove": noise.p_remove,
        "noise": [noise.add_threshold, noise.remove_threshold],
        "samples": options.samples,
        "votes": votes,
        "seed": options.seed,
        "alpha": options.alpha,
        "method": options.method,
        "batches": _batches(defended.classifier, noise, graphs.values()),
    }
    return _Job(defended, graphs, noise, votes, options.seed, settings, own_model)


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
        kinds[f"{classifier.path}, {classifier.batch_size(graph, noise)} at a time"] += 1
    return dict(sorted(kinds.items()))


def _sample(run: Run, job: _Job, options: CertifyOptions) -> None:
    complaints = run.tidy()
    missing, broken = run.pending(job.graphs, noise=job.noise, samples=job.votes, seed=job.seed)
    for complaint in complaints + broken:
        note(complaint, quiet=options.quiet)
    total, done = job.votes * len(job.graphs), job.votes * (len(job.graphs) - len(missing))
    if done and missing:
        note(
            f"continuing {run.folder}: {len(job.graphs) - len(missing)} of {len(job.graphs)} graphs are done",
            quiet=options.silent,
        )
    with progress("sampling", total, unit="samples", quiet=options.silent, done=done) as advance:
        for index in missing:
            graph = job.graphs[index]

            def sample_block(start: int, index: int = index, graph: Graph = graph) -> Block:
                with naming_the_graph(index, own_model=job.own_model):
                    return job.smooth.sample_block(graph, start, samples=job.votes, seed=job.seed)

            blocks = run.sample(
                index,
                graph,
                sample_block,
                noise=job.noise,
                samples=job.votes,
                seed=job.seed,
                advance=advance,
                complain=lambda message: note(message, quiet=options.quiet),
            )
            run.save(index, job.smooth.votes_of(graph, blocks, seed=job.seed))


def _derive(run: Run, job: _Job, options: CertifyOptions) -> list[Row]:
    rows = []
    with progress("certifying", len(job.graphs), unit="graphs", quiet=options.silent) as advance:
        for index in sorted(job.graphs):
            rows.append(derive_row(index, run.load(index), run.settings))
            advance(1)
    return rows
