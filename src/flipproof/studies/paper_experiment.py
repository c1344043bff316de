"""The paper's experiment: networks are trained and every test graph is certified, on all cores. Safe to stop and repeat.

OUT/models/NAME     a trained model, written whole; three of each kind, which differ in their initial weights
OUT/runs/NAME       the votes of its test graphs, as ``flipproof certify`` keeps them, and certificates.csv, read off them
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from flipproof.certificates.metrics import certified_accuracy, shares
from flipproof.certificates.sampled_votes import METHODS, Votes, certify_votes
from flipproof.datasets import Split, split, topologies
from flipproof.defences.baselines import EdgeBlindClassifier
from flipproof.engines import ThisProcess
from flipproof.engines.pool import one_thread
from flipproof.files import write_text
from flipproof.graphs import IntArray
from flipproof.noise import EdgeNoise
from flipproof.report.drawing import NetworksCurve
from flipproof.runs.certifying import ask_missing, certified_run, read_evidence
from flipproof.runs.run_folder import StudySettings, written_run
from flipproof.studies.candidate import Candidate
from flipproof.studies.experiment import run_jobs
from flipproof.studies.search_space import fit_edge_blind, space

CERTIFICATES = "certificates.csv"
_RADIUS = "gin-radius"  # a GIN trained for the radius
_CERTIFIED = ("gin", _RADIUS, "gcn")


class Reading(NamedTuple):
    method: str
    alpha: float
    samples: int


@dataclass(frozen=True)
class Settings:
    """The experiment. Defaults are the paper's figures; where it is silent, docs/paper.md says why these.

    The network for the radius is trained against ``radius_flips`` flips, and sees the number of nodes where keep is at most
    ``sized_keep``: under weaker noise that overfits. Where keep is at least ``one_flip_keep``, no more than one flip is in reach
    of many graphs. It is then trained against one, for longer (``one_flip_epochs``), and last with a bounded loss.
    """

    seed: int = 0
    networks: int = 3
    graphs: int = 480
    train_graphs: int = 320
    min_nodes: int = 10
    max_nodes: int = 20
    keeps: tuple[float, ...] = (0.7, 0.8, 0.9, 0.95, 0.99)
    alphas: tuple[float, ...] = (0.01, 0.001, 0.0001)
    sample_counts: tuple[int, ...] = (1_000, 5_000, 10_000)
    gin_samples: int = 2_500
    figure_keep: float = 0.7
    max_radius: int = 16
    clean_epochs: int = 50
    gcn_epochs: int = 400
    gin_epochs: tuple[int, int] = (40, 5)
    radius_epochs: int = 15
    radius_flips: int = 2
    sized_keep: float = 0.9
    one_flip_keep: float = 0.99
    one_flip_epochs: tuple[int, int] = (40, 10)

    @classmethod
    def quick(cls, *, seed: int = 0) -> Settings:
        """A small version that shows every part in well under a minute; its figures mean little."""
        return cls(
            seed=seed,
            networks=2,
            graphs=96,
            train_graphs=64,
            keeps=(0.7, 0.9),
            sample_counts=(200, 500, 1_000),
            gin_samples=500,
            clean_epochs=20,
            gcn_epochs=50,
            gin_epochs=(15, 1),
            radius_epochs=2,
            one_flip_epochs=(2, 1),
        )

    @property
    def alpha(self) -> float:
        return self.alphas[1]

    def samples(self, network: str = "gcn") -> int:
        """Samples per graph: as many as the paper has for its network."""
        return self.sample_counts[-1] if network == "gcn" else self.gin_samples

    def readings(self, network: str) -> list[Reading]:
        """The certificates read off the votes: every method from all of them, and of the GCN those of the paper's figures."""
        paper = [Reading("paper", *varied) for varied in product(self.alphas, self.sample_counts) if network == "gcn"]
        compared = [Reading(method, self.alpha, self.samples(network)) for method in METHODS]
        return list(dict.fromkeys([*paper, *compared]))

    def jobs(self) -> list[Job]:
        return [Job(*kind) for kind in product(("gin", "gcn"), self.keeps[::-1])]


@dataclass(frozen=True)
class Model:
    """A network trained under the noise of one keep probability, the ``number``-th of its kind."""

    network: str
    keep: float
    number: int

    @property
    def name(self) -> str:
        return f"{self.network}-{self.keep}-{self.number}"

    @property
    def candidate(self) -> Candidate:
        return Candidate(space("smoothing"), space("smoothing").checked({"keep": self.keep}))

    def folder(self, out: Path) -> Path:
        return out / "models" / self.name

    def certificates(self, out: Path) -> Path:
        return out / "runs" / self.name / CERTIFICATES


@dataclass(frozen=True)
class Job:
    """Networks that are trained together, then certified. Both kinds of GIN begin with the same training."""

    network: str
    keep: float

    @property
    def name(self) -> str:
        return f"{self.network}-{self.keep}"

    def models(self, settings: Settings) -> list[Model]:
        kinds = ("gin", _RADIUS) if self.network == "gin" else (self.network,)
        return [Model(kind, self.keep, number) for kind in kinds for number in range(settings.networks)]


@cache
def data_split(settings: Settings) -> Split:
    """The paper's data: 480 graphs, 320 to train and 160 to test."""
    data = topologies(settings.graphs, seed=settings.seed, min_nodes=settings.min_nodes, max_nodes=settings.max_nodes)
    return split(data, train=settings.train_graphs, seed=settings.seed)


def run_experiment(settings: Settings, folder: Path, *, workers: int | None, quiet: bool) -> None:
    with written_run(folder, StudySettings("reproduce", asdict(settings))):
        missing = [
            job
            for job in settings.jobs()
            if not all(model.certificates(folder).exists() for model in job.models(settings))
        ]
        work = partial(do_job, settings, folder)
        for _ in run_jobs("working", missing, work, workers=workers, quiet=quiet, unit="groups of networks"):
            pass


def do_job(settings: Settings, folder: Path, job: Job) -> None:
    """What a worker does: train the networks of a job, certify them, each whole or not at all."""
    from flipproof import models

    with one_thread():
        if not all(model.folder(folder).exists() for model in job.models(settings)):
            data = {"data": f"topologies:{settings.graphs}", "data_seed": settings.seed, "split_seed": settings.seed}
            data |= {"test": 1 - settings.train_graphs / settings.graphs}
            for model, (network, stages) in train_networks(job, settings).items():
                defence = {"name": model.candidate.defence.name, **model.candidate.settings}
                metadata = {**data, "training": stages}
                models.save(network, model.folder(folder), defence=defence, features="degree", metadata=metadata)
        for model in job.models(settings):
            if not model.certificates(folder).exists():
                _certify(model, settings, folder)


def train_networks(job: Job, settings: Settings) -> dict[Model, tuple[Any, list[dict[str, Any]]]]:
    """The networks of a job, trained together, and how. The paper retrains the GCNs that it trained without noise."""
    from flipproof import models
    from flipproof.training.stacked import train_stack

    graphs, noise = data_split(settings).train, EdgeNoise(keep=job.keep)
    train = partial(train_stack, graphs=graphs, noise=noise, features="degree", seed=settings.seed)
    if job.network == "gcn":
        stack = copy.deepcopy(_without_noise(settings))
        stages = [train(stack, **_GCN, epochs=settings.gcn_epochs)]
        return {model: (stack[model.number], stages) for model in job.models(settings)}
    shape: dict[str, Any] = {"in_features": 1, "num_classes": graphs.num_classes, "noise": noise}
    stack = _fresh(partial(models.GIN, **shape), settings)
    stages = [train(stack, **_GIN, epochs=settings.gin_epochs[0])]
    if job.keep <= settings.sized_keep:
        shape["sizes"] = _SIZES
    for_radius = [models.GIN(**shape, seed=0) for _ in stack]
    for ours, theirs in zip(for_radius, stack, strict=True):
        ours.load_state_dict(theirs.state_dict(), strict=False)  # what it learns about sizes starts from nothing
    majority = [train(stack, **_MAJORITY, epochs=settings.gin_epochs[1])]
    attacked = [train(for_radius, **stage) for stage in _attacked_stages(job.keep, settings)]
    made = {"gin": (stack, stages + majority), _RADIUS: (for_radius, stages + attacked)}
    return {model: (made[model.network][0][model.number], made[model.network][1]) for model in job.models(settings)}


@cache
def _without_noise(settings: Settings) -> list[Any]:
    """The paper's networks before they are retrained; made once per process."""
    from flipproof import models
    from flipproof.training.stacked import train_stack

    graphs = data_split(settings).train
    stack = _fresh(partial(models.GCN, in_features=1, num_classes=graphs.num_classes), settings)
    train_stack(
        stack, graphs=graphs, noise=None, features="degree", seed=settings.seed, **_GCN, epochs=settings.clean_epochs
    )
    return stack


def _fresh(make: partial[Any], settings: Settings) -> list[Any]:
    from flipproof.training.stacked import standardise_inputs

    stack = [make(seed=settings.networks * settings.seed + number) for number in range(settings.networks)]
    for network in stack:
        standardise_inputs(network, data_split(settings).train)
    return stack


# fixed on graphs of other seeds than the experiment's (docs/paper.md)
_GCN: dict[str, Any] = {"learning_rate": 0.03, "batch_size": 64}
_GIN: dict[str, Any] = {"learning_rate": 0.005, "batch_size": 64, "copies": 4}
_MAJORITY: dict[str, Any] = {"learning_rate": 0.002, "batch_size": 16, "copies": 32, "objective": "majority"}
_SIZES = 32  # up to this number of nodes a network tells them apart


def _attacked_stages(keep: float, settings: Settings) -> list[dict[str, Any]]:
    attacked = _GIN | {"objective": "attacked", "learning_rate": 0.003}
    if keep < settings.one_flip_keep:
        return [attacked | {"flips": settings.radius_flips, "epochs": settings.radius_epochs}]
    longer, last = settings.one_flip_epochs
    single = attacked | {"flips": 1}
    return [single | {"epochs": longer}, single | {"objective": "attacked-votes", "epochs": last}]


def _certify(model: Model, settings: Settings, folder: Path) -> None:
    """Ask about every test graph, as ``flipproof certify`` does, and write all readings of the votes; once."""
    import pandas

    from flipproof import models

    parts, candidate, rows = data_split(settings), model.candidate, list[tuple[Any, ...]]()
    graphs = {int(index): parts.dataset[int(index)] for index in parts.test_indices}
    defence = candidate.defended(models.load(model.folder(folder)), "degree")
    sampling = {"samples": settings.samples(model.network), "alpha": settings.alpha, "seed": settings.seed}
    question = candidate.question({**sampling, "method": "paper"}, graphs=len(graphs))
    identity = models.load_metadata(model.folder(folder)).weights_hash
    stated: dict[str, Any] = {"split_seed": settings.seed, "model": model.network, "model_sha256": identity}
    with certified_run(model.certificates(folder).parent, defence, question, parts.dataset, graphs, **stated) as run:
        ask_missing(run, defence, graphs, engine=lambda pieces: ThisProcess())
        for index, evidence in read_evidence(run):
            for reading in settings.readings(model.network):
                read = certify_votes(cast(Votes, evidence), **reading._asdict())
                rows.append((index, evidence.graph.label, *reading, read.label, read.radius))
        table = pandas.DataFrame(rows, columns=["graph", "label", *Reading._fields, "predicted", "radius"])
        content = table.astype({"predicted": "Int64"}).to_csv(index=False, lineterminator="\n")
        write_text(run.folder / CERTIFICATES, content)


@dataclass(frozen=True, eq=False)
class Table:
    """The radii of the test graphs under each network of a kind, ``[networks, graphs]``; -1 where it abstains or is wrong."""

    radii: dict[Reading, IntArray]

    def curve(self, name: str, reading: Reading, top: int) -> NetworksCurve:
        radii = self.radii[reading]
        return NetworksCurve(name, np.stack([shares(row, range(top + 1)) for row in radii]), radii.shape[1])


def read_certificates(paths: Sequence[Path]) -> Table:
    import pandas

    radii: dict[Reading, list[IntArray]] = {}
    for path in paths:
        table = pandas.read_csv(path, converters={"alpha": float})  # exactly as it was written
        for reading, graphs in table.groupby(list(Reading._fields), sort=False):
            right = graphs["predicted"] == graphs["label"]  # an abstention is equal to nothing
            radii.setdefault(Reading(*reading), []).append(np.where(right, graphs["radius"], -1))
    return Table({reading: np.stack(networks) for reading, networks in radii.items()})


def read_tables(settings: Settings, folder: Path) -> dict[tuple[str, float], Table]:
    return {
        kind: read_certificates([Model(*kind, number).certificates(folder) for number in range(settings.networks)])
        for kind in product(_CERTIFIED, settings.keeps)
    }


@cache
def edge_blind_accuracy(settings: Settings) -> float:
    """The line to beat, which holds at every radius. A weak one would flatter every certificate."""
    parts = data_split(settings)
    model, _ = fit_edge_blind(parts.train, features="constant", seed=settings.seed)
    certificates = EdgeBlindClassifier(model, features="constant").certify_all(parts.test)
    return float(certified_accuracy(certificates, parts.test.labels, [0])[0])
