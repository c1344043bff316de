"""The paper's experiment: every model is trained, on all cores, then every test graph is asked about. Safe to stop and repeat.

OUT/models/NAME     a trained model, written whole
OUT/runs/NAME       the votes of its test graphs, as ``flipproof certify`` keeps them, and certificates.csv, read off them
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flipproof.certificates.metrics import certified_accuracy
from flipproof.certificates.sampled_votes import METHODS
from flipproof.datasets import Split, split, topologies
from flipproof.datasets.sources import fingerprint
from flipproof.defences.defence import described
from flipproof.defences.edge_blind import EdgeBlindClassifier
from flipproof.fields import to_plain
from flipproof.files import write_json
from flipproof.noise import EdgeNoise
from flipproof.progress import note
from flipproof.runs.certifying import ask_missing, keep_to_path, model_paths
from flipproof.runs.run_folder import written_run
from flipproof.runs.settings import CertifySettings, StudySettings
from flipproof.studies.candidate import Candidate
from flipproof.studies.job_runner import one_thread, run_jobs
from flipproof.studies.reproduce.readings import Reading, write_certificates
from flipproof.studies.search_space import space

__all__ = ["Job", "Settings", "TrainWork", "data_split", "edge_blind_accuracy", "run_experiment", "train_network"]

_BLIND = "edge-blind"
_RADIUS = "gin-radius"  # a GIN trained for the radius


@dataclass(frozen=True)
class Settings:
    """The experiment. Defaults are the paper's figures; where it is silent, docs/paper.md says why these.

    The network for the radius is trained against ``radius_flips`` flips, and sees the number of nodes where keep is at most
    ``sized_keep``: under weaker noise that overfits. Where keep is at least ``one_flip_keep``, no more than one flip is in reach
    of many graphs. It is then trained against one, for longer (``one_flip_epochs``), and last with a bounded loss.
    """

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
    radius_epochs: int = 80
    radius_flips: int = 2
    sized_keep: float = 0.9
    one_flip_keep: float = 0.99
    one_flip_epochs: tuple[int, int] = (400, 80)

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
            radius_epochs=4,
            one_flip_epochs=(4, 2),
        )

    @property
    def alpha(self) -> float:
        """Failure probability of every figure that does not vary it."""
        return self.alphas[1]

    @property
    def samples(self) -> int:
        """Samples of every figure that does not vary them."""
        return self.sample_counts[-1]

    def readings(self) -> list[Reading]:
        """The certificates that are read off the same votes: the paper's for every alpha and number of samples, and ours."""
        paper = [Reading("paper", alpha, count) for alpha in self.alphas for count in self.sample_counts]
        return paper + [Reading(method, self.alpha, self.samples) for method in METHODS if method != "paper"]

    def jobs(self) -> list[Job]:
        """All models; one that another starts from comes before it."""
        noisy = [Job(network, keep) for network in ("gin", "gcn") for keep in self.keeps]
        return [Job("gcn", None), *noisy, *(Job(_RADIUS, keep) for keep in self.keeps), Job(_BLIND, None)]


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
    def weight(self) -> int:
        """Rough cost, for the progress bar."""
        if self.keep is None:
            return 1
        return 5 if self.network == "gcn" else 10

    @property
    def candidate(self) -> Candidate:
        """The defence that the network is trained for."""
        if self.keep is None:
            return Candidate(space("edge-blind" if self.network == _BLIND else "none"))
        return Candidate(space("smoothing"), space("smoothing").checked({"keep": self.keep}))

    @property
    def features(self) -> str:
        """What the network sees of a node."""
        return "constant" if self.network == _BLIND else "degree"

    def model(self, folder: Path) -> Path:
        """Where the trained model is."""
        return folder / "models" / self.name

    def run(self, folder: Path) -> Path:
        """Where its certificates are."""
        return folder / "runs" / self.name


@cache
def data_split(settings: Settings) -> Split:
    """The paper's data: 480 graphs, 320 to train and 160 to test."""
    data = topologies(settings.graphs, seed=settings.seed, min_nodes=settings.min_nodes, max_nodes=settings.max_nodes)
    return split(data, train=settings.train_graphs, seed=settings.seed)


def run_experiment(settings: Settings, folder: Path, *, workers: int | None, quiet: bool) -> None:
    """Train and certify what is missing."""
    with written_run(folder, StudySettings("reproduce", asdict(settings))):
        missing = [job for job in settings.jobs() if not job.model(folder).exists()]
        work, ready = TrainWork(settings, folder), _ready(missing, folder)
        for job, seconds in run_jobs("training", missing, work, ready=ready, workers=workers, quiet=quiet):
            _note_seconds(folder, job, {"train": seconds})
        for job in settings.jobs():
            if job.keep is not None:
                note(f"{job.name}: certifying the test graphs", quiet=quiet)
                _certify(job, settings, folder, workers=workers, quiet=quiet)


def _ready(missing: Sequence[Job], folder: Path) -> Iterator[Job | None]:
    """The jobs in an order in which they can be done; ``None`` where one must be waited for."""
    waiting = list(missing)
    while waiting:
        found = next((job for job in waiting if job.needs is None or job.needs.model(folder).exists()), None)
        if found is not None:
            waiting.remove(found)
        yield found


def _note_seconds(folder: Path, job: Job, seconds: dict[str, float]) -> None:
    """Add the times of this session's work to what an earlier one noted."""
    path = folder / "seconds.json"
    noted = json.loads(path.read_text()) if path.exists() else {}
    write_json(path, {**noted, job.name: {**noted.get(job.name, {}), **seconds}})


@dataclass(frozen=True)
class TrainWork:
    """What a worker does: train a network and write its folder, whole or not at all; the seconds that it took."""

    settings: Settings
    folder: Path

    def __call__(self, job: Job) -> float:
        from flipproof import models

        settings, started, candidate = self.settings, time.perf_counter(), job.candidate
        with one_thread():
            start = None if job.needs is None else models.load(job.needs.model(self.folder))
            network, trained = train_network(job, settings, seed=settings.seed, start=start)
        models.save(
            network,
            job.model(self.folder),
            defence={"name": candidate.defence.name, **candidate.settings},
            features=job.features,
            data=f"topologies:{settings.graphs}",
            data_seed=settings.seed,
            split_seed=settings.seed,
            test=1 - settings.train_graphs / settings.graphs,
            training=trained,
            starts_from=None if job.needs is None else job.needs.name,
        )
        return time.perf_counter() - started


def train_network(job: Job, settings: Settings, *, seed: int, start: Any = None) -> tuple[Any, list[dict[str, Any]]]:
    """The network of a job, trained with a seed, and how; from the weights of ``start``, or of the job that it needs."""
    from flipproof import models
    from flipproof.training import train

    graphs = data_split(settings).train
    if job.network == _BLIND:  # a weak line would flatter every certificate
        line = models.NodeStatistics(graphs.num_classes)
        return line, [asdict(line.fit(graphs, features=job.features, seed=seed))]
    network = start
    if network is None:
        network = _fresh(job, settings, seed) if job.needs is None else train_network(job.needs, settings, seed=seed)[0]
    shared = {"features": job.features, "seed": seed, **job.candidate.defence.training(job.candidate.settings)}
    return network, [train(network, graphs, **shared, **stage).settings for stage in _stages(job, settings)]


# fixed on graphs of other seeds than the experiment's (docs/paper.md)
_GCN: dict[str, Any] = {"learning_rate": 0.03, "batch_size": 64, "average": 0.99}
_GIN: dict[str, Any] = {"learning_rate": 0.005, "batch_size": 64, "average": 0.99}
_SIZES = 32  # up to this number of nodes a network tells them apart


def _stages(job: Job, settings: Settings) -> list[dict[str, Any]]:
    """What each training of a network is done with, one after the other."""
    if job.network == "gcn":
        return [_GCN | {"epochs": settings.clean_epochs if job.keep is None else settings.gcn_epochs}]
    first, second = settings.gin_epochs
    if job.network == _RADIUS:
        noisy, attacked = _GIN | {"copies": 4}, {"objective": "attacked", "flips": settings.radius_flips}
        slow = {"learning_rate": 0.003}
        assert job.keep is not None
        if job.keep < settings.one_flip_keep:
            return [noisy | {"epochs": first}, noisy | attacked | slow | {"epochs": settings.radius_epochs}]
        longer, last = settings.one_flip_epochs
        attacked["flips"] = 1
        bounded = attacked | slow | {"objective": "attacked-votes"}
        return [noisy | {"epochs": first}, noisy | attacked | {"epochs": longer}, noisy | bounded | {"epochs": last}]
    majority = {"learning_rate": 0.002, "batch_size": 16, "copies": 64, "objective": "majority", "epochs": second}
    return [_GIN | {"copies": 4, "epochs": first}, _GIN | majority]


def _fresh(job: Job, settings: Settings, seed: int) -> Any:
    from flipproof import models

    num_classes = data_split(settings).train.num_classes
    noise = None if job.keep is None else EdgeNoise(keep=job.keep)
    if job.network == "gcn":
        return models.GCN(in_features=1, num_classes=num_classes, seed=seed)
    sizes = _SIZES if job.network == _RADIUS and job.keep is not None and job.keep <= settings.sized_keep else None
    return models.GIN(in_features=1, num_classes=num_classes, noise=noise, sizes=sizes, seed=seed)


def _certify(job: Job, settings: Settings, folder: Path, *, workers: int | None, quiet: bool) -> None:
    """Ask about every test graph, as ``flipproof certify`` does, and read all certificates off the votes."""
    from flipproof import models

    parts, candidate = data_split(settings), job.candidate
    graphs = {int(index): parts.dataset[int(index)] for index in parts.test_indices}
    defence = candidate.defence.build(models.load(job.model(folder)), candidate.settings, features=job.features)
    asked = {"samples": settings.samples, "alpha": settings.alpha, "method": "paper", "seed": settings.seed}
    keep_to_path(defence, job.run(folder))
    defence.check(list(graphs.values()))
    certified = CertifySettings(
        data=parts.dataset.name,
        data_sha256=fingerprint(parts.dataset),
        class_names=list(parts.dataset.class_names),
        part="test",
        split_seed=settings.seed,
        graphs=list(graphs),
        model=job.network,
        model_sha256=models.load_metadata(job.model(folder)).weights_hash,
        features=job.features,
        num_classes=defence.num_classes,
        defence=described(defence.defence),
        question=to_plain(candidate.question(asked, graphs=len(graphs))),
        paths=model_paths(defence, graphs),
    )
    engine = defence.engine(workers or 0, quiet=quiet)
    with written_run(job.run(folder), certified) as run:
        fresh, started = not run.store.finished(), time.perf_counter()
        ask_missing(run, defence, graphs, engine=lambda pieces: engine, quiet=quiet)
        sampled = time.perf_counter()
        wrote = write_certificates(run, settings.readings(), engine=engine, quiet=quiet)
        if fresh and wrote:
            _note_seconds(folder, job, {"sample": sampled - started, "certify": time.perf_counter() - sampled})


def edge_blind_accuracy(settings: Settings, folder: Path) -> float:
    """The line to beat: right at every radius where it is right at all."""
    from flipproof import models

    job, test = Job(_BLIND, None), data_split(settings).test
    blind = EdgeBlindClassifier(models.load(job.model(folder)), features=job.features)
    return float(certified_accuracy(blind.certify_all(test), test.labels, [0])[0])
