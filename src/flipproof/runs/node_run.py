"""Runs over the nodes of one graph: the same folder, with one row of evidence for the graph and a row of the table per node."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.certificates.node_votes import NodeVotes
from flipproof.datasets.node_task import NodeTask
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise
from flipproof.noise.feature_law import feature_noise_from
from flipproof.runs.run_folder import Run, RunSettings, open_run
from flipproof.runs.table import Row, certificate_row, read_table, write_table

_GRAPH = 0  # the item of the evidence


@dataclass(frozen=True)
class NodeSettings(RunSettings):
    """What ``flipproof certify --task nodes`` was asked for."""

    command = "certify --task nodes"

    data: str
    data_sha256: str
    class_names: list[str]
    part: str
    split_seed: int
    nodes: list[int]  # numbers of those that are certified
    model: str
    model_sha256: str
    features: str
    noise: dict[str, float]  # of edges and of features
    samples: int
    alpha: float
    simultaneous: bool
    seed: int


def fingerprint(task: NodeTask) -> str:
    """Hash of the graph, its features and its nodes' classes."""
    digest = hashlib.sha256(f"{task.graph.topology} {task.class_names}".encode() + task.labels.astype("<i8").tobytes())
    if task.graph.node_features is not None:
        digest.update(task.graph.node_features.astype("<f8").tobytes())
    return digest.hexdigest()


def certify_nodes_into(run: Run[NodeSettings], task: NodeTask, sample: Callable[[], NodeVotes]) -> list[Row]:
    """Ask, unless the run has its votes already, derive the certificates, and write the table; returns its rows."""
    if _GRAPH in run.store.finished():
        votes = NodeVotes.from_bytes(run.store.load(_GRAPH), source=f"the evidence in {run.folder}")
    else:
        votes = replace(sample(), labels=task.labels.copy())
        run.store.finish(_GRAPH, votes.to_bytes())
    rows = list(derive_rows(run.settings, votes))
    write_table(run.folder, rows)
    return rows


def derive_rows(settings: NodeSettings, votes: NodeVotes) -> Iterator[Row]:
    """One row per node that is certified, from the evidence alone."""
    reading: dict[str, Any] = {"alpha": settings.alpha, "simultaneous": settings.simultaneous}
    digest = votes.digest
    for node, certificate in zip(settings.nodes, votes.certificates(settings.nodes, **reading), strict=True):
        label = -1 if votes.labels is None else int(votes.labels[node])
        row = certificate_row(_GRAPH, votes.graph.replaced(label=None if label < 0 else label), certificate, digest)
        yield row | {"node": node}


def problems_of_node_run(folder: Path) -> list[str]:
    """What does not agree in a run over nodes: evidence, noise or table; empty if everything does."""
    with open_run(folder, NodeSettings) as run:
        settings = run.settings
        try:
            votes = NodeVotes.from_bytes(run.store.load(_GRAPH), source=f"the evidence in {folder}")
        except InputError as error:
            return [str(error)]
    problems = []
    noise = EdgeNoise(add=settings.noise["add"], remove=settings.noise["remove"])
    asked = (settings.samples, settings.seed, noise, feature_noise_from(settings.noise))
    if (len(votes), votes.seed, votes.noise, votes.feature_noise) != asked:
        problems.append("the evidence answers another question than run.json asks")
    elif not votes.made_again():
        problems.append("the noise that the model was shown cannot be made again")
    stored, derived = list(read_table(folder)), list(derive_rows(settings, votes))
    if len(stored) != len(derived):
        problems.append(f"the table has {len(stored)} rows for {len(derived)} nodes")
    for mine, theirs in zip(derived, stored, strict=False):
        differing = [name for name, value in mine.items() if theirs[name] != value]
        if differing:
            problems.append(f"node {mine['node']}: {differing[0]} does not follow from the evidence")
    return problems


def summary_of(rows: list[Row], settings: NodeSettings) -> dict[str, Any]:
    """Certified accuracy over nodes, by changes of one kind alone; plain JSON."""
    right = np.array([bool(row["correct"]) for row in rows])
    radii = {name: np.array([-1 if row[name] is None else row[name] for row in rows]) for name in _RADII}
    shares = {
        name: {str(r): float((right & (reached >= r)).mean()) for r in (0, 1, 2, 3, 5, 10)}
        for name, reached in radii.items()
    }
    if feature_noise_from(settings.noise) is None:
        del shares["feature_radius"]
    plain = {name: value for name, value in asdict(settings).items() if name not in ("nodes", "class_names")}
    abstained = sum(row["predicted"] is None for row in rows)
    return {**plain, "nodes": len(rows), "abstained": abstained, "certified_accuracy": shares}


_RADII = ("radius", "adds_radius", "removes_radius", "feature_radius")
