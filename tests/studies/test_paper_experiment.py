"""What the paper's experiment trains, in which order, and what its models remember."""

from dataclasses import replace

import numpy as np
import pytest

from flipproof import models
from flipproof.datasets.sources import model_data
from flipproof.studies import paper_experiment
from flipproof.studies.paper_experiment import Job, Model, Settings, data_split, do_job, train_networks

NOTHING = {"data": None, "root": None, "download": False, "data_seed": None, "split_seed": None}
EPOCHS = {"clean_epochs": 1, "gcn_epochs": 1, "gin_epochs": (1, 1), "radius_epochs": 1}
TINY = Settings(graphs=32, train_graphs=20, networks=2, **EPOCHS)


def test_a_job_trains_once_and_its_test_graphs_were_no_training_graphs(tmp_path, monkeypatch):
    job, certified = Job("gcn", 0.7), list[Model]()
    monkeypatch.setattr(paper_experiment, "_certify", lambda model, settings, folder: certified.append(model))
    do_job(TINY, tmp_path, job)
    saved = models.load_metadata(tmp_path / "models" / "gcn-0.7-1").metadata
    source, graphs = model_data(saved, **NOTHING)
    assert source.split(graphs).test_indices.tolist() == data_split(TINY).test_indices.tolist()
    assert source.split(graphs).train_indices.tolist() == data_split(TINY).train_indices.tolist()
    first, second = job.models(TINY)
    first.certificates(tmp_path).mkdir(parents=True)
    monkeypatch.setattr(paper_experiment, "train_networks", lambda *again: 1 / 0)
    do_job(TINY, tmp_path, job)
    assert certified == [first, second, second]


def test_the_experiment_is_the_papers():
    settings = Settings()
    parts = data_split(settings)
    assert (len(parts.train), len(parts.test)) == (320, 160)
    assert np.bincount(parts.test.labels).tolist() == [20] * 8
    assert settings.keeps == (0.7, 0.8, 0.9, 0.95, 0.99)
    assert settings.alphas == (0.01, 0.001, 0.0001)
    assert settings.sample_counts == (1_000, 5_000, 10_000)
    trained = [model for job in settings.jobs() for model in job.models(settings)]
    assert len(set(trained)) == len(trained) == 3 * 3 * 5


@pytest.mark.parametrize("settings", [Settings(), Settings.quick()])
def test_no_certificate_is_read_twice(settings):
    """A graph that counts twice would narrow every interval."""
    for network in ("gcn", "gin"):
        readings = settings.readings(network)
        assert len(set(readings)) == len(readings)


def test_networks_of_a_kind_differ_and_start_from_their_own_weights():
    trained = train_networks(Job("gcn", 0.9), TINY)
    first, second = (network.head.weight for network, _ in trained.values())
    assert list(trained) == [Model("gcn", 0.9, 0), Model("gcn", 0.9, 1)]
    assert not np.allclose(first.detach(), second.detach(), atol=1e-3)


@pytest.mark.parametrize(
    ("keep", "objectives", "sees_sizes"),
    [
        (0.9, ["samples", "attacked"], True),
        (0.95, ["samples", "attacked"], False),
        (0.99, ["samples", "attacked", "attacked-votes"], False),
    ],
)
def test_a_network_for_the_radius_is_trained_in_stages(keep, objectives, sees_sizes):
    trained = train_networks(Job("gin", keep), replace(TINY, one_flip_epochs=(1, 1)))
    network, stages = trained[Model("gin-radius", keep, 1)]
    assert [stage["objective"] for stage in stages] == objectives
    assert [stage.get("flips") for stage in stages[1:]] == ([2] if keep < 0.99 else [1, 1])
    assert (network.config.get("sizes") is not None) is sees_sizes
    _, stages = trained[Model("gin", keep, 0)]
    assert [stage["objective"] for stage in stages] == ["samples", "majority"]
