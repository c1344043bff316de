"""The table of certificates: read in groups, written as a stream, the same content whatever the size of a group."""

import csv
import io
import json

import pytest

from flipproof import EdgeNoise, Graph, SmoothedClassifier, certify_run
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
    monkeypatch.setattr(table, "_GROUP", group)
    write_table(tmp_path, iter(rows))
    stored = read_table(tmp_path)
    assert len(stored) == len(rows) == 11
    assert list(stored) == rows
    assert [stored[place] for place in (10, 0, -1, 5)] == [rows[place] for place in (10, 0, -1, 5)]
    assert stored[3:7] == rows[3:7]
    with pytest.raises(IndexError):
        stored[11]
    assert columns_of(stored, "radius", "looks") == columns_of(rows, "radius", "looks")


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
