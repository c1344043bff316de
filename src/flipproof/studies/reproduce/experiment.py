"""What is trained and certified: one job for each network and keep probability, each safe to interrupt and to repeat."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flipproof.workers import Report

from flipproof.datasets import Split, split, topologies
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise
from flipproof.runs.folder import Run, write_json

__all__ = ["Job", "Settings", "data_split", "run_job"]


@dataclass(frozen=True)
class Settings:
    """The experiment. Defaults are the paper's figures; where it is silent, docs/paper.md says why these."""

    seed: int = 0
    graphs: int = 480
    train_graphs: int = 320
    min_nodes: int = 10
    max_nodes: int = 20
    keeps: tuple[float, ...] = (0.7, 0.8, 0.9, 0.95, 0.99)
    alphas: tuple[float, ...] = (0.01, 0.001, 0.0001)
    sample_counts: tuple[int, ...] = (1_000, 5_000, 10_000)
    figure_keep: float = 0.7
    max_radius: int = 16
    clean_epochs: int = 200
    gcn_epochs: int = 1000
    gin_epochs: tuple[int, int] = (150, 30)

    @classmethod
    def quick(cls, *, seed: int = 0) -> Settings:
        """A small version that shows every part in well under a minute; its figures mean little."""
        return cls(
            seed=seed,
            graphs=96,
            train_graphs=64,
            keeps=(0.7, 0.9),
            sample_counts=(200, 500, 1_000),
            clean_epochs=30,
            gcn_epochs=30,
            gin_epochs=(20, 2),
        )

    @property
    def alpha(self) -> float:
        """Failure probability of every figure that does not vary it."""
        return self.alphas[1]

    @property
    def samples(self) -> int:
        """Samples of every figure that does not vary them."""
        return self.sample_counts[-1]

    def jobs(self) -> list[Job]:
        """Everything to be done; a job may need the one that trains on clean graphs."""
        noisy = [Job(network, keep) for network in ("gin", "gcn") for keep in self.keeps]
        return [Job("gcn", None), *noisy, Job("edge-blind", None)]


@dataclass(frozen=True)
class Job:
    """A network trained under the noise of one keep probability and certified with it; ``None``: trained without noise."""

    network: str
    keep: float | None

    @property
    def name(self) -> str:
        """Name of the job's folders."""
        return f"{self.network}-{'clean' if self.keep is None else self.keep}"

    @property
    def needs(self) -> Job | None:
        """The job whose weights this one starts from: the paper retrains the network that it trained without noise."""
        return Job("gcn", None) if self.network == "gcn" and self.keep is not None else None

    @property
    def weight(self) -> float:
        """Rough cost, for the bar over everything."""
        if self.keep is None:
            return 1
        return 10 if self.network == "gin" else 5


@cache
def data_split(settings: Settings) -> Split:
    """The paper's data: 480 graphs, 320 to train and 160 to test."""
    data = topologies(settings.graphs, seed=settings.seed, min_nodes=settings.min_nodes, max_nodes=settings.max_nodes)
    return split(data, train=settings.train_graphs, seed=settings.seed)


def run_job(job: Job, settings: Settings, folder: Path, report: Report) -> None:
    """Train, sample and certify, as far as not done already."""
    train_seconds = _train(job, settings, folder, report)
    seconds = {"train": train_seconds}
    if job.keep is not None:
        seconds |= _certify(job, settings, folder, report)
    elif job.network == "edge-blind":
        _certify_edge_blind(job, settings, folder)
    _note_seconds(folder / "runs" / job.name / "seconds.json", seconds)


def _note_seconds(path: Path, seconds: dict[str, float | None]) -> None:
    """Add the times of this session's work to what an earlier one noted."""
    import json

    noted = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, noted | {key: value for key, value in seconds.items() if value is not None})


def model_folder(folder: Path, job: Job) -> Path:
    """Where a job's weights are."""
    return folder / "models" / job.name


def _train(job: Job, settings: Settings, folder: Path, report: Report) -> float | None:
    from flipproof import models
    from flipproof.training import train

    target = model_folder(folder, job)
    if target.exists():
        models.load(target)
        return None
    train_graphs = data_split(settings).train
    features = "constant" if job.network == "edge-blind" else "degree"
    noise = None if job.keep is None else EdgeNoise(keep=job.keep)
    if job.needs is not None:
        network = models.load(model_folder(folder, job.needs))
    else:
        network = _fresh(job, settings, train_graphs.num_classes, noise)
    stages = _stages(job, settings)
    total = sum(stage["epochs"] for stage in stages)
    started = time.perf_counter()
    done = 0

    def advance(epoch: int, epochs: int) -> None:
        report("training", done + epoch, total)

    trained = []
    for stage in stages:
        result = train(
            network, train_graphs, noise=noise, features=features, seed=settings.seed, progress=advance, **stage
        )
        trained.append(result.settings)
        done += result.epochs
    metadata = {
        "noise": noise,
        "features": features,
        "data": f"topologies:{settings.graphs}",
        "data_seed": settings.seed,
        "split_seed": settings.seed,
        "test": 1 - settings.train_graphs / settings.graphs,
        "training": trained,
        "starts_from": None if job.needs is None else job.needs.name,
    }
    models.save(network, target, **metadata)
    return time.perf_counter() - started


# fixed on graphs of other seeds than the experiment's (docs/paper.md)
_GCN: dict[str, Any] = {"learning_rate": 0.03, "batch_size": 64, "average": 0.99}
_GIN: dict[str, Any] = {"learning_rate": 0.005, "batch_size": 64, "average": 0.99}


def _stages(job: Job, settings: Settings) -> list[dict[str, Any]]:
    """What each training of a network is done with, one after the other."""
    if job.network == "gcn":
        return [_GCN | {"epochs": settings.clean_epochs if job.keep is None else settings.gcn_epochs}]
    first, second = settings.gin_epochs
    if job.network == "edge-blind":
        return [_GIN | {"epochs": first}]
    majority = {"learning_rate": 0.002, "batch_size": 16, "copies": 64, "objective": "majority", "epochs": second}
    return [_GIN | {"copies": 4, "epochs": first}, _GIN | majority]


def _fresh(job: Job, settings: Settings, num_classes: int, noise: EdgeNoise | None) -> Any:
    from flipproof import models

    if job.network == "gcn":
        return models.GCN(in_features=1, num_classes=num_classes, seed=settings.seed)
    network = models.GIN(in_features=1, num_classes=num_classes, noise=noise, seed=settings.seed)
    return models.EdgeBlind(network) if job.network == "edge-blind" else network


def _certify(job: Job, settings: Settings, folder: Path, report: Report) -> dict[str, float | None]:
    from flipproof import models
    from flipproof.defences.smoothing import SmoothedClassifier
    from flipproof.studies.reproduce.results import write_certificates

    assert job.keep is not None
    saved = models.load_metadata(model_folder(folder, job))
    network = models.load(model_folder(folder, job))
    noise, test = EdgeNoise(keep=job.keep), list(data_split(settings).test)
    smooth = SmoothedClassifier(network, noise, features="degree")
    asked = {
        "data": "topologies",
        "graphs": len(test),
        "model_sha256": saved.weights_hash,
        "p_add": noise.p_add,
        "p_remove": noise.p_remove,
        "samples": settings.samples,
        "seed": settings.seed,
        "path": smooth.classifier.path,
    }
    run = Run(folder / "runs" / job.name, asked)
    strangers = run.tidy()
    missing, complaints = run.pending(test, noise=noise, samples=settings.samples, seed=settings.seed)
    for complaint in strangers + complaints:
        report(complaint, 0, 0)
    started = time.perf_counter()
    smooth.check(test)
    for place, index in enumerate(missing):
        report("sampling", len(test) - len(missing) + place, len(test))
        run.save(index, smooth.sample(test[index], samples=settings.samples, seed=settings.seed))
    sampled = time.perf_counter()
    write_certificates(run, test, settings, report)
    done = time.perf_counter()
    whole = len(missing) == len(test)
    return {"sample": sampled - started if whole else None, "certify": done - sampled if whole else None}


def _certify_edge_blind(job: Job, settings: Settings, folder: Path) -> None:
    """The line to beat: right at every radius where it is right at all."""
    import numpy as np
    import torch

    from flipproof import models

    network = models.load(model_folder(folder, job))
    test = data_split(settings).test
    with torch.inference_mode():
        answers = [
            int(
                network(
                    torch.ones(1, graph.num_nodes, 1),
                    torch.zeros(1, graph.num_nodes, graph.num_nodes),
                    torch.ones(1, graph.num_nodes, dtype=torch.bool),
                ).argmax()
            )
            for graph in test
        ]
    right = int(np.sum(np.array(answers) == test.labels))
    write_json(folder / "runs" / job.name / "accuracy.json", {"right": right, "graphs": len(test)})


def checked_folder(folder: Path, settings: Settings) -> None:
    """Write down what was asked, or refuse a folder in which something else was asked."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder; {folder} is a file (choose another name)")
    Run(folder, {"command": "reproduce", **dataclasses.asdict(settings)})
