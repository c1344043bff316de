"""What the paper's experiment trains, in which order, and what its models remember."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipproof import models
from flipproof.datasets.sources import model_data
from flipproof.studies.paper_experiment import Job, Model, Settings, Work, data_split, train_networks

NOTHING = {"data": None, "root": None, "download": False, "data_seed": None, "split_seed": None}
TINY = Settings(
    graphs=32, train_graphs=20, networks=2, clean_epochs=1, gcn_epochs=1, gin_epochs=(1, 1), radius_epochs=1
)


def test_test_graphs_of_a_reproduced_model_were_no_training_graphs(tmp_path: Path) -> None:
    Work(TINY, tmp_path)(Job("gcn"))
    saved = models.load_metadata(tmp_path / "models" / "gcn-clean-1").metadata
    source, graphs = model_data(saved, **NOTHING)  # type: ignore[arg-type]
    assert source.split(graphs).test_indices.tolist() == data_split(TINY).test_indices.tolist()
    assert source.split(graphs).train_indices.tolist() == data_split(TINY).train_indices.tolist()


def test_a_network_is_retrained_after_it_was_trained_and_done_once_it_is_certified(tmp_path: Path) -> None:
    first, second = Job("gcn"), Job("gin", 0.7)
    assert Job("gcn", 0.7).needs == first
    for job in (first, second):
        for model in job.models(TINY):
            assert not job.trained(TINY, tmp_path)
            model.folder(tmp_path).mkdir(parents=True)
        assert job.trained(TINY, tmp_path)
        assert job.done(TINY, tmp_path) == (job is first)
    for model in second.models(TINY):
        model.certificates(tmp_path).mkdir(parents=True)
    assert second.done(TINY, tmp_path)


def test_the_experiment_is_the_papers() -> None:
    settings = Settings()
    parts = data_split(settings)
    assert (len(parts.train), len(parts.test)) == (320, 160)
    assert np.bincount(parts.test.labels).tolist() == [20] * 8
    assert settings.keeps == (0.7, 0.8, 0.9, 0.95, 0.99)
    assert settings.alphas == (0.01, 0.001, 0.0001)
    assert settings.sample_counts == (1_000, 5_000, 10_000)
    trained = [model for job in settings.jobs() for model in job.models(settings)]
    assert len(set(trained)) == len(trained) == 3 + 3 * 3 * 5 + 1  # without noise, under noise, edge-blind


@pytest.mark.parametrize("settings", [Settings(), Settings.quick()])
def test_no_certificate_is_read_twice(settings: Settings) -> None:
    """A graph that counts twice would narrow every interval."""
    for network in ("gcn", "gin"):
        readings = settings.readings(network)
        assert len(set(readings)) == len(readings)


def test_networks_of_a_kind_differ_and_start_from_their_own_weights() -> None:
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
def test_a_network_for_the_radius_is_trained_in_stages(keep: float, objectives: list[str], sees_sizes: bool) -> None:
    trained = train_networks(Job("gin", keep), replace(TINY, one_flip_epochs=(1, 1)))
    network, stages = trained[Model("gin-radius", keep, 1)]
    assert [stage["objective"] for stage in stages] == objectives
    assert [stage.get("flips") for stage in stages[1:]] == ([2] if keep < 0.99 else [1, 1])
    assert (network.config.get("sizes") is not None) is sees_sizes
    _, stages = trained[Model("gin", keep, 0)]
    assert [stage["objective"] for stage in stages] == ["samples", "majority"]
