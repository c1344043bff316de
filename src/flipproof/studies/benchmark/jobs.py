"""One network trained with one defence on one split, and certified: stored whole, never made twice."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flipproof.commands.sources import DataSource, fingerprint
from flipproof.workers import Report

from flipproof import __version__
from flipproof.certificates.certificate import Certificate
from flipproof.datasets import Dataset, split
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import STREAM_VERSION
from flipproof.runs.folder import write_json
from flipproof.studies.benchmark.config import Network, Plan
from flipproof.studies.benchmark.defences import Certified, Defence, EdgeBlindLine, Undefended

__all__ = ["Job", "Parts", "data_parts", "prepare", "read_job", "run_job", "withstands"]

_BLINDED = "gin"  # the network of the edge-blind line: our strongest, so that the line is a fair one
_LINE_WEIGHT = 0.2


@dataclass(frozen=True)
class Job:
    """A piece of a benchmark. ``digest`` tells it from the same piece of a benchmark with other settings or data."""

    data: str
    network: str
    defence: Defence
    split: int
    digest: str

    @property
    def name(self) -> str:
        """For messages and files."""
        return f"{Path(self.data).name} {self.network} {self.defence.name} split {self.split}"

    @property
    def needs(self) -> None:
        """Nothing: jobs are independent."""
        return None

    @property
    def weight(self) -> float:
        """Rough cost, for the bar over everything."""
        return _LINE_WEIGHT if self.defence.line else 1.0

    def path(self, folder: Path) -> Path:
        """Where its result is stored."""
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", self.name)
        return folder / "jobs" / f"{slug}-{self.digest[:12]}.json"


@dataclass(frozen=True, eq=False)
class Parts:
    """What a job may see: graphs to train on, to choose the epoch with (or none), and to certify.

    ``certified_indices`` are positions in the data set.
    """

    train: Dataset
    validation: Dataset | None
    certified: Dataset
    certified_indices: tuple[int, ...]

    @cached_property
    def fingerprints(self) -> list[str | None]:
        """What tells these graphs from others."""
        parts = (self.train, self.validation, self.certified)
        return [None if graphs is None else fingerprint(graphs) for graphs in parts]


@lru_cache(maxsize=2)
def _graphs(source: DataSource) -> Dataset:
    return source.load()


def _spread(data: Dataset, most: int | None, seed: int) -> list[int]:
    """Positions of at most so many graphs, with every class in proportion."""
    if most is None or most >= len(data):
        return list(range(len(data)))
    return [int(index) for index in split(data, train=most, seed=seed).train_indices]


def data_parts(plan: Plan, seed: int) -> Parts:
    """The graphs of a split. To choose settings (``part="validation"``), test graphs are not even looked at."""
    data = _graphs(plan.source)
    parts = split(data, test=plan.source.test, validation=plan.source.validation, seed=seed)
    indices = parts.test_indices if plan.part == "test" else parts.validation_indices
    if not len(indices):
        raise InputError(f"{plan.name}: the {plan.part} part holds no graph (ask for a larger share)")
    indices = indices[_spread(data.subset(indices), plan.test_graphs, seed)]
    return Parts(
        parts.train.subset(_spread(parts.train, plan.train_graphs, seed)),
        parts.validation if plan.choose_epoch else None,
        data.subset(indices),
        tuple(int(index) for index in indices),
    )


def prepare(plans: Sequence[Plan]) -> list[Job]:
    """All jobs, lines to compare with first; data that cannot be used are refused here, before any work."""
    from flipproof.classifiers.features import refuse_clean_degrees

    jobs = []
    for plan in plans:
        for seed in plan.splits:
            parts = data_parts(plan, seed)
            pieces: list[tuple[Network, Defence]] = [(_blind(plan), EdgeBlindLine())]
            pieces += [(network, defence) for network in plan.networks for defence in (Undefended(), *plan.defences)]
            for network, defence in pieces:
                hook = _features(plan, parts, defence)
                if seed == plan.splits[0]:
                    _build(network, defence, hook, parts, seed)
                    if hook.reads_own:
                        refuse_clean_degrees(list(parts.train))
                digest = _digest(_asked(plan, parts, network, defence, seed))
                jobs.append(Job(plan.name, network.name, defence, seed, digest))
    return jobs


def _blind(plan: Plan) -> Network:
    """The network of the edge-blind line: with the arguments and training that the plan has for it, else the first one's."""
    given = {network.name: network for network in plan.networks}
    if _BLINDED in given:
        return given[_BLINDED]
    return Network(_BLINDED, {}, plan.networks[0].training)


def _features(plan: Plan, parts: Parts, defence: Defence) -> Any:
    from flipproof.classifiers.features import as_features

    own = parts.train.num_node_features > 0
    if isinstance(defence, EdgeBlindLine):
        return as_features("own" if own else "constant")
    return as_features(plan.features or ("own" if own else "degree"))


def _asked(plan: Plan, parts: Parts, network: Network, defence: Defence, seed: int) -> dict[str, Any]:
    """All that a result depends on, as plain JSON."""
    return {
        "data": plan.name,
        "part": plan.part,
        "graphs": parts.fingerprints,
        "network": {"name": network.name, **network.arguments},
        "training": dict(network.training),
        "features": _features(plan, parts, defence).spec,
        "defence": repr(defence),
        "split": seed,
        "sampling": asdict(plan.sampling) if defence.sampled else None,
        "budgets": [list(budget) for budget in plan.budgets],
        "versions": [__version__, STREAM_VERSION],
    }


def _digest(asked: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def read_job(job: Job, folder: Path) -> dict[str, Any] | None:
    """The stored result; ``None`` if there is none, or none that can be read."""
    try:
        content = json.loads(job.path(folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("digest") == job.digest else None


def run_job(job: Job, *, plans: Mapping[str, Plan], folder: Path, report: Report) -> None:
    """Train, certify and store."""
    from flipproof.training import train

    plan = plans[job.data]
    parts = data_parts(plan, job.split)
    network = next((network for network in plan.networks if network.name == job.network), _blind(plan))
    hook = _features(plan, parts, job.defence)
    model = _build(network, job.defence, hook, parts, job.split)
    started = time.process_time()
    result = train(
        model,
        parts.train,
        features=hook,
        validation=parts.validation,
        seed=job.split,
        progress=lambda epoch, epochs: report("training", epoch, epochs),
        **{**network.training, **job.defence.training()},
    )
    trained = time.process_time() - started
    certified = job.defence.certify(model, parts.certified.graphs, features=hook, sampling=plan.sampling, report=report)
    write_json(
        job.path(folder),
        {
            "digest": job.digest,
            "asked": _asked(plan, parts, network, job.defence, job.split),
            "train_graphs": len(parts.train),
            "train_accuracy": result.final.accuracy,
            "graphs": list(parts.certified_indices),
            "labels": parts.certified.labels.tolist(),
            "certificates": _recorded(certified, parts.certified, plan.budgets),
            "seconds": {"train": trained, **certified.seconds},
        },
    )


def _build(network: Network, defence: Defence, hook: Any, parts: Parts, seed: int) -> Any:
    from flipproof import models

    config: dict[str, Any] = {
        "name": network.name,
        "in_features": int(hook.of(parts.train[0]).shape[1]),
        "num_classes": parts.train.num_classes,
        **network.arguments,
    }
    blind = isinstance(defence, EdgeBlindLine)
    return models.build({"name": "edge-blind", "network": config} if blind else config, seed=seed)


def _recorded(certified: Certified, graphs: Dataset, budgets: Sequence[tuple[int, int]]) -> dict[str, dict[str, Any]]:
    return {
        method: {
            "predicted": [certificate.label for certificate in certificates],
            "radius": [certificate.radius for certificate in certificates],
            "adds_radius": [certificate.adds_radius for certificate in certificates],
            "removes_radius": [certificate.removes_radius for certificate in certificates],
            "withstands": [
                [withstands(certificate, graph, adds=adds, removes=removes) for adds, removes in budgets]
                for certificate, graph in zip(certificates, graphs, strict=True)
            ],
        }
        for method, certificates in certified.certificates.items()
    }


def withstands(certificate: Certificate, graph: Graph, *, adds: int, removes: int) -> bool:
    """Whether the prediction stands against at most so many additions together with at most so many removals.

    Every smaller attack must be certified too; the grid is read as far as it goes, the radius beyond. What the graph has no
    room for, no attacker can do.
    """
    if certificate.abstains:
        return False
    adds, removes = min(adds, graph.max_adds), min(removes, graph.max_removes)
    if certificate.radius >= adds + removes:
        return True
    grid = certificate.grid
    return bool(adds < grid.shape[0] and removes < grid.shape[1] and np.all(grid[: adds + 1, : removes + 1]))
