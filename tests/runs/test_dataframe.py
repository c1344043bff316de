"""Certificates as a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

import flipproof as fp
from flipproof.datasets import topologies


@pytest.fixture(scope="module")
def certified() -> tuple[Any, list[fp.Certificate]]:
    graphs = topologies(8)
    smooth = fp.SmoothedClassifier(
        lambda shown: [int(g.num_edges > 35) for g in shown], fp.EdgeNoise(keep=0.8), num_classes=8
    )
    return graphs, smooth.certify_all(graphs, samples=40, alpha=0.01, seed=0)


def test_a_data_frame_has_a_row_per_certificate(certified: tuple[Any, list[fp.Certificate]]) -> None:
    graphs, certificates = certified
    frame = fp.to_dataframe(certificates, graphs)
    assert isinstance(frame, pandas.DataFrame)
    assert frame["radius"].tolist() == [c.radius for c in certificates]
    assert frame["nodes"].tolist() == [graph.num_nodes for graph in graphs]
    assert frame["label"].tolist() == graphs.labels.tolist()
    abstained = [c.abstains for c in certificates]
    assert frame["predicted"].isna().tolist() == abstained
    assert any(abstained)
    assert not all(abstained)
    share = fp.certified_accuracy(certificates, graphs.labels, radii=[1])[0]
    assert ((frame["correct"]) & (frame["radius"] >= 1)).mean() == pytest.approx(share)
    assert frame.groupby("label")["radius"].mean().shape == (8,)
    assert str(frame["predicted"].dtype) == "Int64"
    assert frame["counts"].tolist() == [list(c.counts) for c in certificates]
    assert frame["graph"].tolist() == list(range(8))
    assert np.array(frame["grid"][0]).shape == certificates[0].grid.shape
    assert "correct" not in fp.to_dataframe(certificates)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda graphs, found: fp.to_dataframe(found, graphs[:3]), "those of the certificates, 8; got 3"),
        (lambda graphs, found: fp.to_dataframe(graphs), "list of certificates; got Graph"),
    ],
)
def test_what_it_refuses(call: Any, sentence: str, certified: tuple[Any, list[fp.Certificate]]) -> None:
    with pytest.raises(fp.InputError, match=sentence):
        call(*certified)
