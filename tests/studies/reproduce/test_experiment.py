"""What the paper's experiment trains, in which order, and what its models remember."""

from __future__ import annotations

from pathlib import Path

from flipproof import models
from flipproof.datasets.sources import model_data
from flipproof.studies.reproduce.experiment import Job, Settings, TrainWork, _ready, data_split

NOTHING = {"data": None, "root": None, "download": False, "data_seed": None, "split_seed": None}


def test_test_graphs_of_a_reproduced_model_were_no_training_graphs(tmp_path: Path) -> None:
    settings = Settings(graphs=32, train_graphs=20, clean_epochs=1)
    TrainWork(settings, tmp_path)(Job("gcn", None))
    saved = models.load_metadata(tmp_path / "models" / "gcn-clean").metadata
    source, graphs = model_data(saved, **NOTHING)  # type: ignore[arg-type]
    assert source.split(graphs).test_indices.tolist() == data_split(settings).test_indices.tolist()
    assert source.split(graphs).train_indices.tolist() == data_split(settings).train_indices.tolist()


def test_a_network_is_retrained_after_it_was_trained(tmp_path: Path) -> None:
    first = Job("gcn", None)
    waiting = _ready([Job("gcn", 0.7), first, Job("gin", 0.7), Job("gcn", 0.9)], tmp_path)
    assert [next(waiting) for _ in range(3)] == [first, Job("gin", 0.7), None]
    first.model(tmp_path).mkdir(parents=True)
    assert list(waiting) == [Job("gcn", 0.7), Job("gcn", 0.9)]
