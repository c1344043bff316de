"""Models and exact smoothed classifiers to attack, for the tests of attacks."""

import itertools
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import flipproof as fp
from flipproof.classifiers import Classifier
from flipproof.defences.changed_nodes import are_labels
from flipproof.graphs import pairs_of_slots
from flipproof.noise import NoisyBatch


class TableClassifier(Classifier):
    """A base classifier that is a table over all graphs of some nodes: what it says is known without asking."""

    path = "table"

    def __init__(self, labels: NDArray[Any], num_classes: int) -> None:
        self.table, self.num_classes = labels, num_classes

    def batch_size(self, graph: fp.Graph, noise: fp.EdgeNoise) -> int:
        return 1024

    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        return np.eye(self.num_classes)[self.table[batch.states @ (1 << np.arange(batch.states.shape[1]))]]

    def expectation(self, graph: fp.Graph) -> str:
        return "a row of states"


@cache
def trained(name: str, keep: float | None) -> tuple[torch.nn.Module, fp.datasets.Dataset]:
    """A small network of the paper's data, trained for a few seconds, and its test graphs."""
    parts = fp.datasets.split(fp.datasets.topologies(160, seed=0), train=96, seed=0)
    network = fp.models.build({"name": name, "in_features": 1, "num_classes": 8, "hidden": 24}, seed=0)
    noise = None if keep is None else fp.EdgeNoise(keep=keep)
    fp.train(network, parts.train, noise=noise, epochs=30, batch_size=32, learning_rate=0.02, seed=0)
    return network, parts.test


class PygNetwork(torch.nn.Module):
    """Two layers of PyG's, any kind, with a mean readout."""

    def __init__(self, layer: str, seed: int = 0) -> None:
        from torch_geometric import nn

        super().__init__()
        torch.manual_seed(seed)
        kind, sizes = getattr(nn, layer), ((1, 8), (8, 8))
        made = (kind(torch.nn.Linear(*size)) if layer == "GINConv" else kind(*size) for size in sizes)
        self.layers = torch.nn.ModuleList(made)
        self.head = torch.nn.Linear(8, 3)
        self.num_classes = 3
        self.eval()

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        from torch_geometric.nn import global_mean_pool

        for layer in self.layers:
            x = torch.tanh(layer(x, edge_index))
        logits: torch.Tensor = self.head(global_mean_pool(x, batch))
        return logits


def hashed(seed: int, often: int) -> Any:
    """A base classifier without structure, by edges and features; one label in ``often`` is not 0."""

    def classify(graphs: list[fp.Graph]) -> list[int]:
        texts = (f"{seed} {graph.edges.tolist()} {graph.node_features.astype(int).tolist()}" for graph in graphs)
        return [int(int.from_bytes(text.encode()) % 1_000_003 % often == 0) for text in texts]

    return classify


def attacked_graphs(graph: fp.Graph, flips: int, changes: int) -> list[fp.Graph]:
    """All graphs at exactly so many flips and changed labels, or bits; written a second time."""
    features, result = graph.node_features, []
    width = features.shape[1]
    labels = are_labels(features)
    units = range(graph.num_nodes if labels else features.size)
    for chosen in itertools.combinations(units, changes):
        for news in itertools.product(range(width) if labels else [0], repeat=changes):
            after = features.copy()
            for unit, new in zip(chosen, news, strict=True):
                if labels:
                    after[unit] = np.eye(width)[new]
                else:
                    after.flat[unit] = 1 - after.flat[unit]
            if labels and (after != features).any(axis=1).sum() < changes:
                continue
            for slots in itertools.combinations(graph.slots.tolist(), flips):
                pairs = pairs_of_slots(np.array(slots, dtype=np.int64), graph.num_nodes)
                result.append(graph.replaced(node_features=after).flipped(pairs))
    return result
