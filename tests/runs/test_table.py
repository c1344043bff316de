"""The table of certificates: read in groups, written as a stream, the same content whatever the size of a group."""

import csv
import io
import json
from typing import Any

import numpy as np
import pandas
import pytest

import flipproof as fp
from flipproof import EdgeNoise, Graph, SmoothedClassifier, certify_run
from flipproof.datasets import topologies
from flipproof.errors import InputError
from flipproof.runs import table
from flipproof.runs.table import COLUMNS, columns_of, read_table, write_formatted, write_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    smooth = SmoothedClassifier(
        lambda graphs: [int(g.num_edges > 2) for g in graphs], EdgeNoise(keep=0.9), num_classes=2
    )
    graphs = [Graph(5, [(0, node) for node in range(1, 1 + place % 5)], label=place % 2) for place in range(11)]
    run = tmp_path_factory.mktemp("table") / "run"
    certify_run(smooth, graphs, out=run, samples=200)
    return run


def written(rows, kind):
    content = io.BytesIO()
    write_formatted(rows, kind, content)
    return content.getvalue()


@pytest.mark.parametrize("group", [1, 4, 11, 100])
def test_groups_make_no_difference(folder, tmp_path, monkeypatch, group):
    rows = list(read_table(folder))
    monkeypatch.setattr(table, "ROWS_AT_ONCE", group)
    write_table(tmp_path, iter(rows))
    stored = read_table(tmp_path)
    assert len(stored) == len(rows) == 11
    assert list(stored) == rows
    assert [stored[place] for place in (10, 0, -1, 5)] == [rows[place] for place in (10, 0, -1, 5)]
    assert stored[3:7] == rows[3:7]
    with pytest.raises(IndexError):
        stored[11]
    assert columns_of(stored, "radius", "counts") == columns_of(rows, "radius", "counts")


def test_formats(folder):
    rows = list(read_table(folder))
    assert written(rows, "json").decode() == json.dumps(rows, indent=1) + "\n"
    assert written([], "json") == b"[]\n"
    lines = list(csv.DictReader(io.StringIO(written(rows, "csv").decode())))
    assert [int(line["radius"]) for line in lines] == [row["radius"] for row in rows]
    assert list(lines[0]) == list(COLUMNS)
    with pytest.raises(InputError, match="--format must be one of csv, parquet, json; got 'xml'"):
        written(rows, "xml")


def test_a_damaged_group_is_said(folder, tmp_path):
    content = bytearray((folder / "certificates.parquet").read_bytes())
    content[4:2000] = bytes(len(content[4:2000]))
    (tmp_path / "certificates.parquet").write_bytes(content)
    with pytest.raises(InputError, match="is cut off or altered"):
        list(read_table(tmp_path))


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
