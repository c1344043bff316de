"""Training on nodes, their tasks and splits."""

from typing import Any

import numpy as np
import pytest
import torch

from flipproof import BitNoise, EdgeNoise, Graph, InputError, train_nodes
from flipproof.datasets import NodeTask, citation, split_nodes
from flipproof.models import GCN, NodeGCN, load, save
from support.shared_data import data_root

RNG = np.random.default_rng(0)
CLASSES = np.repeat([0, 1, 2], 20)
PAIRS = [(u, v) for u in range(60) for v in range(u) if RNG.random() < (0.2 if CLASSES[u] == CLASSES[v] else 0.01)]
WORDS = (RNG.random((60, 12)) < np.where(np.arange(12) // 4 == CLASSES[:, None], 0.5, 0.1)).astype(np.float32)
TASK = NodeTask(Graph(60, PAIRS, WORDS), CLASSES)
SPLIT = split_nodes(TASK, train=5, validation=5, seed=1)


def trained(**arguments: Any):
    model = NodeGCN(12, 3, hidden=16, seed=0)
    return model, train_nodes(model, TASK, split=SPLIT, epochs=40, **arguments)


@pytest.mark.parametrize(
    "noises", [{}, {"noise": EdgeNoise(add=0.01, remove=0.4)}, {"feature_noise": BitNoise(add=0.05, remove=0.4)}]
)
def test_learns_and_is_repeatable(noises, tmp_path):
    model, result = trained(**noises)
    again, _ = trained(**noises, checkpoint=tmp_path / "part")
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), again.parameters(), strict=True))
    assert not model.training
    assert result.final.validation_accuracy > 0.7
    save(model, tmp_path / "model", metadata={"task": "nodes"})
    x, edge_index = torch.from_numpy(WORDS), TASK.graph.to_pyg().edge_index
    assert torch.equal(load(tmp_path / "model")(x, edge_index), model(x, edge_index))


def test_a_split_holds_every_node_once():
    parts = [*SPLIT.train, *SPLIT.validation, *SPLIT.test]
    assert sorted(parts) == list(range(60))
    assert np.bincount(CLASSES[SPLIT.train]).tolist() == [5, 5, 5]
    assert np.array_equal(split_nodes(TASK, train=5, validation=5, seed=1).train, SPLIT.train)
    assert not np.array_equal(split_nodes(TASK, train=5, validation=5, seed=2).train, SPLIT.train)


def test_what_is_refused(tmp_path):
    with pytest.raises(InputError, match="class 0 has 20"):
        split_nodes(TASK)
    with pytest.raises(InputError, match="one per node"):
        NodeTask(TASK.graph, CLASSES[:5])
    with pytest.raises(InputError, match="train trains a model for graphs"):
        train_nodes(GCN(12, 3), TASK, split=SPLIT)
    with pytest.raises(InputError, match="does not exist"):
        citation(tmp_path / "none")
    with pytest.raises(InputError, match="no folder raw"):
        citation(tmp_path)
    np.savez(tmp_path / "odd.npz", edges=np.zeros((0, 2)))
    with pytest.raises(InputError, match="it has no num_nodes"):
        citation(tmp_path)


def test_cora_ml():
    folder = data_root() / "Cora-ML"
    if not folder.is_dir():
        pytest.skip(f"no Cora-ML at {folder}")
    task = citation(folder)
    assert (task.graph.num_nodes, task.graph.num_edges, task.num_classes) == (2810, 7981, 7)
    assert task.graph.node_features.sum() == 142_286
    parts = split_nodes(task, seed=0)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (140, 140, 2530)
