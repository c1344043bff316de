"""How fast noisy copies are classified: ratios to a loop that builds one PyG graph a copy, in the same run.

    python benchmarks/sampling.py

Three ways to ask the paper's GCN for the class of noisy copies of the paper's graphs, one thread: a Python loop with a PyG
``Data`` a copy, PyG message passing on batches built without a loop, dense batches. Prints samples a second and ratios, with the
spread over graphs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch_geometric.nn import GCNConv, global_mean_pool

import flipproof as fp
from flipproof.graphs import Graph
from flipproof.noise import SampleStream

NOISE = fp.EdgeNoise(keep=0.9)
GRAPHS = 8


class PyGNet(torch.nn.Module):
    """The paper's network in PyG's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = GCNConv(1, 64), GCNConv(64, 64), torch.nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.second(self.first(x, edge_index).relu(), edge_index).relu()
        return self.head(global_mean_pool(hidden, batch))


def loop(network: torch.nn.Module, graph: Graph, samples: int) -> None:
    """What people do: one copy after the other."""
    batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, samples)
    with torch.inference_mode():
        for noisy in batch.graphs():
            data = noisy.to_pyg()
            x = torch.from_numpy(noisy.degrees.astype(np.float32)[:, None])
            network(x, data.edge_index, torch.zeros(noisy.num_nodes, dtype=torch.int64)).argmax()


def rate(work: Callable[[Graph, int], object], graphs: list[Graph], samples: int) -> np.ndarray:
    """Samples a second for each graph."""
    work(graphs[0], min(samples, 64))
    rates = []
    for graph in graphs:
        started = time.perf_counter()
        work(graph, samples)
        rates.append(samples / (time.perf_counter() - started))
    return np.array(rates)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = fp.datasets.split(fp.datasets.topologies()).test
    graphs = [data[index] for index in range(GRAPHS)]
    pyg, dense = PyGNet().eval(), fp.models.GCN(in_features=1, num_classes=8, seed=0).eval()
    sparse_way = fp.SmoothedClassifier(pyg, NOISE, num_classes=8, features="degree")
    dense_way = fp.SmoothedClassifier(dense, NOISE, num_classes=8, features="degree")
    rates = {
        "one PyG graph a copy": rate(lambda graph, samples: loop(pyg, graph, samples), graphs, 512),
        "PyG in batches without a loop": rate(lambda g, m: sparse_way.sample(g, samples=m, seed=0), graphs, 4_096),
        "dense batches": rate(lambda g, m: dense_way.sample(g, samples=m, seed=0), graphs, 10_240),
    }
    base = rates["one PyG graph a copy"]
    print(f"{'':32}{'samples/s':>12}{'ratio':>10}{'spread':>16}")
    for name, found in rates.items():
        ratio = found / base
        spread = f"{ratio.min():.1f} to {ratio.max():.1f}"
        print(f"{name:32}{np.median(found):>12,.0f}{np.median(ratio):>10.1f}{spread:>16}")


if __name__ == "__main__":
    main()
