"""Models for the guards: some whose answers depend on other graphs or earlier calls, in every convention, and honest networks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

import flipproof as fp

WIDTH = 6


class Cached(nn.Module):
    """Answers by the size of its input alone, once it has seen one of that size."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Any, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        return self.seen.setdefault(tuple(x.shape), x)


class Counted(nn.Module):
    """Counts its calls, and lets the count be felt."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * (1 + 0.1 * self.calls)


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


MUTANTS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm without running statistics": lambda: nn.BatchNorm1d(WIDTH, track_running_stats=False),
    "PairNorm": pyg.PairNorm,
    "GraphNorm": lambda: pyg.GraphNorm(WIDTH),
    "InstanceNorm": lambda: pyg.InstanceNorm(WIDTH),
    "LayerNorm over the batch": lambda: pyg.LayerNorm(WIDTH, mode="graph"),
    "mean over the batch": lambda: Applied(lambda x: x - x.mean(0)),
    "dropout left on": lambda: Applied(lambda x: nn.functional.dropout(x, 0.5, training=True)),
    "sorting among all nodes": lambda: Applied(lambda x: x + x[x[:, 0].argsort()]),
    "a counter": Counted,
    "a cache by size": Cached,
}


class OnNodes(nn.Module):
    """A message-passing layer, a part that mixes rows, a pooled head."""

    num_classes = 3

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.part, self.head = pyg.GraphConv(1, WIDTH), part, nn.Linear(WIDTH, 3)
        self.eval()

    def rows(self, x: Tensor, edge_index: Tensor) -> Tensor:
        rows: Tensor = self.part(self.conv(x, edge_index).tanh())
        return rows


class ByBatch(OnNodes):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        logits: Tensor = self.head(pyg.global_mean_pool(self.rows(x, edge_index), batch))
        return logits


class ByData(OnNodes):
    def forward(self, data: Any) -> Tensor:
        logits: Tensor = self.head(pyg.global_mean_pool(self.rows(data.x, data.edge_index), data.batch))
        return logits


class Dense(nn.Module):
    num_classes = 3

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.part, self.head = nn.Linear(1, WIDTH), part, nn.Linear(WIDTH, 3)
        self.eval()

    def forward(self, x: Tensor, adj: Tensor, mask: Tensor) -> Tensor:
        rows = self.first(x + adj @ x).tanh()
        mixed = self.part(rows.flatten(0, 1)).view(rows.shape)
        logits: Tensor = self.head(mixed.mean(dim=1))
        return logits


class BlackBox:
    """Labels alone: what is mixed shows in the last digits of a sum."""

    num_classes = 2

    def __init__(self, part: nn.Module) -> None:
        torch.manual_seed(0)
        self.conv, self.part = pyg.GraphConv(1, WIDTH), part.eval()

    def __call__(self, graphs: list[fp.Graph]) -> list[int]:
        from torch_geometric.data import Batch

        batch = Batch.from_data_list([graph.to_pyg() for graph in graphs])
        x = torch.bincount(batch.edge_index[0], minlength=batch.num_nodes).float()[:, None]
        with torch.no_grad():
            rows = self.part(self.conv(x, batch.edge_index).tanh())
        sums = pyg.global_mean_pool(rows, batch.batch).sum(dim=1)
        return [int(value * 400) % 2 for value in sums.tolist()]


CONVENTIONS = {"pyg": ByBatch, "data": ByData, "dense": Dense, "black box": BlackBox}
REFUSED = "function of the noisy graph alone|statistics of the batch|training mode|the model failed on noisy copies"
ODD = [fp.Graph(1, []), fp.Graph(2, []), fp.Graph(5, [(u, v) for u in range(5) for v in range(u)])]
TREE = fp.Graph(12, [(node, (node - 1) // 2) for node in range(1, 12)])
PLACES = {"alone": [TREE], "first": [TREE, *ODD], "last": [*ODD, TREE], "beside": [ODD[0], TREE, ODD[2]]}
NOISES = [fp.EdgeNoise(keep=0.9), fp.EdgeNoise(keep=0.9999), fp.EdgeNoise(add=0, remove=0.5)]


class Zoo(nn.Module):
    """An honest network of PyG's; with a norm between sums of large numbers, rounding is felt."""

    num_classes = 3

    def __init__(
        self,
        first: nn.Module,
        second: nn.Module | None = None,
        norm: nn.Module | None = None,
        *,
        readout: nn.Module | None = None,
        width: int = 8,
    ) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.norm, self.second, self.head = first, norm, second, nn.Linear(width, 3)
        self.readout = readout or pyg.SumAggregation()
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = self.first(x, edge_index).relu()
        if self.norm is not None:
            x = self.norm(x, batch)
        if self.second is not None:
            x = self.second(x, edge_index).relu()
        logits: Tensor = self.head(self.readout(x, batch))
        return logits


def normalised(norm: nn.Module | None = None, readout: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(2)
    layers = pyg.GraphConv(1, 16), pyg.GraphConv(16, 16)
    return Zoo(*layers, norm, readout=readout or pyg.MeanAggregation(), width=16)


class Pooled(nn.Module):
    """A network that drops nodes."""

    num_classes = 3

    def __init__(self, pool: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.pool, self.head = pyg.GraphConv(1, 8), pool, nn.Linear(8, 3)
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        x = 0.01 * self.conv(x, edge_index).relu()  # scores that saturate tie, and of ties the batch decides
        x, edge_index, _, batch, _, _ = self.pool(x, edge_index, batch=batch)
        logits: Tensor = self.head(pyg.global_mean_pool(x, batch))
        return logits


def perceptron(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 8))


def layer(name: str) -> Callable[[], nn.Module]:
    """A network of one layer of PyG's."""
    options: dict[str, Any] = {"K": 2} if name in ("SGConv", "ChebConv") else {}
    return lambda: Zoo(getattr(pyg, name)(1, 8, **options))


ONE_LAYER = "TAG SG Cheb ARMA Transformer LE ClusterGCN FeaSt GEN ResGatedGraph General"
HONEST: dict[str, Callable[[], nn.Module]] = {
    "GCN": lambda: Zoo(pyg.GCNConv(1, 8), pyg.GCNConv(8, 8)),
    "SAGE": lambda: Zoo(pyg.SAGEConv(1, 8), pyg.SAGEConv(8, 8)),
    "GIN": lambda: Zoo(pyg.GINConv(perceptron(1)), pyg.GINConv(perceptron(8))),
    "GAT": lambda: Zoo(pyg.GATConv(1, 4, heads=2), pyg.GATConv(8, 8)),
    "GATv2": lambda: Zoo(pyg.GATv2Conv(1, 4, heads=2), pyg.GATv2Conv(8, 8)),
    "GraphConv": lambda: Zoo(pyg.GraphConv(1, 8), pyg.GraphConv(8, 8)),
    **{name: layer(f"{name}Conv") for name in ONE_LAYER.split()},
    "Edge": lambda: Zoo(pyg.EdgeConv(nn.Linear(2, 8))),
    "Gated": lambda: Zoo(pyg.GatedGraphConv(8, 2)),
    "PNA": lambda: Zoo(pyg.PNAConv(1, 8, ["mean", "max"], ["identity"], torch.tensor([0, 1, 2]))),
    "GraphNorm": lambda: Zoo(pyg.GCNConv(1, 8), norm=pyg.GraphNorm(8)),
    "PairNorm": lambda: Zoo(pyg.GCNConv(1, 8), norm=pyg.PairNorm()),
    "LayerNorm": lambda: Zoo(pyg.GCNConv(1, 8), norm=pyg.LayerNorm(8)),
    "GraphNorm between sums": lambda: normalised(pyg.GraphNorm(16)),
    "PairNorm between sums": lambda: normalised(pyg.PairNorm()),
    "InstanceNorm": lambda: normalised(pyg.InstanceNorm(16)),
    "MeanSubtractionNorm": lambda: normalised(pyg.MeanSubtractionNorm()),
    "standard deviations": lambda: normalised(readout=pyg.aggr.StdAggregation()),
    "a set transformer": lambda: normalised(readout=pyg.aggr.SetTransformerAggregation(16, heads=2)),
    "TopK": lambda: Pooled(pyg.TopKPooling(8, ratio=0.6)),
}
