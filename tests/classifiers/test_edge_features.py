"""Edge attributes: a model that reads stored ones is refused; those made from the end nodes, after the noise, are sound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATv2Conv, GCNConv, global_mean_pool

import flipproof as fp

NOISE = fp.EdgeNoise(keep=0.9)


class WithData(torch.nn.Module):
    """Takes a PyG Data and reads its bonds in one of several ways."""

    def __init__(self, how: str = "attribute") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.how, self.num_classes = how, 2
        self.conv, self.out = GATv2Conv(3, 8, edge_dim=2), torch.nn.Linear(8, 2)

    def forward(self, data: Any) -> Tensor:
        edges = {
            "attribute": lambda: data.edge_attr,
            "getattr": lambda: getattr(data, "edge_attr", None),
            "item": lambda: data["edge_attr"],
            "if in": lambda: "edge_attr" in data or None,
            "nothing": lambda: None,
        }[self.how]()
        x = self.conv(data.x, data.edge_index, edges).relu()
        return self.out(global_mean_pool(x, data.batch))


class WithArguments(WithData):
    """As :class:`WithData`, in PyG's usual convention."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return self.out(global_mean_pool(self.conv(x, edge_index, edge_attr).relu(), batch))


def graph(seed: int = 0, n: int = 9) -> fp.Graph:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) < 0.4, 1)
    return fp.Graph(n, np.argwhere(upper), rng.normal(size=(n, 3)).astype(np.float32), seed % 2)


def ends(u: Tensor, v: Tensor) -> Tensor:
    return torch.stack([(u * v).sum(dim=1), (u - v).abs().sum(dim=1)], dim=1)


@pytest.mark.parametrize("how", ["attribute", "getattr", "item", "if in"])
def test_a_model_that_reads_stored_edge_attributes_is_refused(how: str) -> None:
    smooth = fp.SmoothedClassifier(WithData(how).eval(), NOISE)
    with pytest.raises(fp.InputError, match=r"forward reads edge_attr.*edge_features"):
        smooth.certify(graph(), samples=20)
    with pytest.raises(fp.InputError, match="forward reads edge_attr"):
        fp.train(WithData(how), [graph(0), graph(1)], features="own", epochs=1)


def test_a_model_that_does_not_read_them_is_not_refused() -> None:
    assert fp.SmoothedClassifier(WithData("nothing").eval(), NOISE).certify(graph(), samples=20).samples == 20


@pytest.mark.parametrize("kind", [WithData, WithArguments])
def test_edge_features_of_the_end_nodes_are_made_after_the_noise(kind: type[torch.nn.Module]) -> None:
    """The votes are those of the model on the noisy graphs by hand, the edges' features computed on each."""
    seen: list[int] = []

    def counted(u: Tensor, v: Tensor) -> Tensor:
        seen.append(len(u))
        return ends(u, v)

    model = kind().eval()
    smooth = fp.SmoothedClassifier(model, NOISE, edge_features=counted)
    votes = smooth.sample(graph(), samples=64, seed=3)
    assert sum(seen) > 0
    batch, _ = votes.stream().batch(0, 64)
    with torch.no_grad():
        for noisy, label in zip(batch.graphs(), votes.labels.tolist(), strict=True):
            data = noisy.to_pyg()
            data.edge_attr = ends(data.x[data.edge_index[0]], data.x[data.edge_index[1]])
            data.batch = torch.zeros(data.num_nodes, dtype=torch.int64)
            taken = data if kind is WithData else None
            logits = model(taken) if taken else model(data.x, data.edge_index, data.edge_attr, data.batch)
            assert int(logits.argmax()) == label


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [("bonds", "must be a function"), (lambda u, v: u[:2], "one row per edge"), (lambda u, v: 3, "one row per edge")],
)
def test_edge_features_that_are_none(wrong: Any, sentence: str) -> None:
    with pytest.raises(fp.InputError, match=sentence):
        fp.SmoothedClassifier(WithData().eval(), NOISE, edge_features=wrong).certify(graph(), samples=10)


def test_edge_features_for_a_model_that_takes_none() -> None:
    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = GCNConv(3, 2)

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            return global_mean_pool(self.conv(x, edge_index), batch)

    with pytest.raises(fp.InputError, match="takes edge_attr and batch by name"):
        fp.SmoothedClassifier(Plain().eval(), NOISE, num_classes=2, edge_features=ends)


def test_a_data_with_edge_attributes_is_taken_with_a_warning() -> None:
    data = graph().to_pyg()
    data.edge_attr = torch.ones(data.num_edges, 2)
    smooth = fp.SmoothedClassifier(WithData("nothing").eval(), NOISE)
    with pytest.warns(UserWarning, match=r"edge_attr of the PyG Data is not used.*edge_features"):
        smooth.certify(data, samples=10)
