"""A data set as a user names it, its split, and what a model folder remembers of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof import models
from flipproof.datasets.sources import DataSource, fingerprint, model_data, part_indices
from support.command_line import write_graphs

NOTHING: dict[str, Any] = {"data": None, "root": None, "download": False, "data_seed": None, "split_seed": None}


def saved_with(folder: Path, **metadata: object) -> models.SavedModel:
    models.save(models.GCN(in_features=1, num_classes=8, hidden=2, seed=0), folder, **metadata)
    return models.load_metadata(folder)


def test_topologies_with_a_number_and_a_seed() -> None:
    assert len(DataSource("topologies").load()) == 480
    first, second = DataSource("topologies:16").load(), DataSource("topologies:16", seed=1).load()
    assert (len(first), len(second)) == (16, 16)
    assert fingerprint(first) != fingerprint(second)


def test_a_folder_and_a_tu_name_and_the_folder_of_a_tu_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graphs(tmp_path / "mine")
    assert len(DataSource(str(tmp_path / "mine")).load()) == 12
    monkeypatch.chdir(tmp_path)
    assert len(DataSource("mine").load()) == 12
    (tmp_path / "TOY").mkdir()
    for kind, text in {"A": "1,2\n2,1\n", "graph_indicator": "1\n1\n2\n", "graph_labels": "0\n1\n"}.items():
        (tmp_path / "TOY" / f"TOY_{kind}.txt").write_text(text)
    for source in (DataSource("TOY", root=str(tmp_path)), DataSource(str(tmp_path / "TOY")), DataSource("TOY")):
        assert source.load().name == "TOY"


def test_a_folder_called_like_the_data_does_not_come_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graphs(tmp_path / "topologies")
    source = DataSource("topologies:16")
    assert source.metadata(source.load())["data"] == "topologies:16"
    assert DataSource("topologies").load().num_classes == 8
    write_graphs(tmp_path / "TOY")
    with pytest.raises(fp.InputError, match="no files of TOY under tu"):
        DataSource("TOY", root="tu").load()


def test_a_model_folder_remembers_its_data_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_graphs(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    source = DataSource("mine", split_seed=7, test=0.25, validation=0.25)
    graphs = source.load()
    saved = saved_with(tmp_path / "model", **source.metadata(graphs))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again, found = model_data(saved.metadata, **NOTHING)
    assert found == graphs
    assert again.split(found).test_indices.tolist() == source.split(graphs).test_indices.tolist()
    other, _ = model_data(saved.metadata, **(NOTHING | {"split_seed": 8}))
    assert other.split_seed == 8
    (tmp_path / "mine" / "0.edges").write_text("0 1\n")
    with pytest.raises(fp.InputError, match="are not those that the model was trained on"):
        model_data(saved.metadata, **NOTHING)
    with pytest.raises(fp.InputError, match="are not those that the model was trained on"):
        model_data(saved.metadata, **(NOTHING | {"data": "../mine"}))


def test_test_graphs_of_a_reproduced_model_were_no_training_graphs(tmp_path: Path) -> None:
    from flipproof.studies.paper_experiment import Job, Settings, TrainWork, data_split

    settings = Settings(graphs=32, train_graphs=20, clean_epochs=1)
    TrainWork(settings, tmp_path)(Job("gcn", None))
    source, graphs = model_data(models.load_metadata(tmp_path / "models" / "gcn-clean").metadata, **NOTHING)
    assert source.split(graphs).test_indices.tolist() == data_split(settings).test_indices.tolist()
    assert source.split(graphs).train_indices.tolist() == data_split(settings).train_indices.tolist()


def test_the_fingerprint_sees_edges_features_labels_and_names() -> None:
    base = fp.Graph(3, [(0, 1)], np.ones((3, 1), np.float32), 0)
    variants = [
        [base],
        [base, base],
        [base.replaced(edges=[(0, 2)])],
        [base.replaced(label=1)],
        [base.replaced(node_features=np.zeros((3, 1), np.float32))],
        [base.replaced(node_features=None)],
    ]
    hashes = [fingerprint(fp.datasets.Dataset(graphs, class_names=["a", "b"])) for graphs in variants]
    hashes.append(fingerprint(fp.datasets.Dataset([base], class_names=["a", "c"])))
    assert len(set(hashes)) == len(hashes)
    assert hashes[0] == fingerprint(fp.datasets.Dataset([base], class_names=["a", "b"], name="other"))


def test_parts_and_limits() -> None:
    source = DataSource("topologies:24", validation=0.25)
    parts = source.split(source.load())
    chosen = {part: part_indices(parts, part, None) for part in ("train", "validation", "test")}
    assert (
        sorted(index for indices in chosen.values() for index in indices)
        == part_indices(parts, "all", None)
        == list(range(24))
    )
    few = part_indices(parts, "test", 3)
    assert few == sorted(set(few)) == part_indices(parts, "test", 3)
    assert set(few) < set(chosen["test"])
