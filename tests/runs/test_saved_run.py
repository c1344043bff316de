"""What was certified in Python is a run like any other: reported, exported, verified, continued, read back."""

import copy
import json
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from torch_geometric.loader import DataLoader

import flipproof as fp
from flipproof.datasets import Dataset, topologies
from flipproof.defences.baselines import Undefended
from flipproof.models import GIN, Local
from flipproof.report.reading import read_run
from flipproof.report.report_page import report_page
from flipproof.runs.saved_run import problems_of_run
from flipproof.runs.table import COLUMNS, TABLE_FILE, read_table
from support.command_line import call
from support.learnable import Blind

NOISE, UNEQUAL = fp.EdgeNoise(keep=0.8), fp.EdgeNoise(add=0.1, remove=0.4)


def by_edges(graphs):
    return [int(graph.num_edges > 20) + int(graph.num_edges > 40) for graph in graphs]


GRAPHS = [fp.Graph(6, [(0, 1), (1, 2), (2, 3)][:size], label=size % 2, name=f"{size}") for size in (1, 2, 3)]
WITH_LABELS = [graph.replaced(node_features=np.eye(3)[[0, 1, 2, 0, 0, 0]]) for graph in GRAPHS]


def network(kind=GIN):
    return kind(in_features=1, num_classes=2, seed=0).eval()


DEFENCES: dict[str, tuple[Any, dict[str, Any]]] = {
    "smoothing": (lambda: fp.SmoothedClassifier(network(), NOISE, features="degree"), {"samples": 100}),
    "smoothing over labels": (
        lambda: fp.SmoothedClassifier(by_edges, UNEQUAL, feature_noise=fp.LabelNoise(keep=0.8), num_classes=2),
        {"samples": 100},
    ),
    "priced votes": (lambda: fp.VotingClassifier(network(), 3, features="degree"), {"depth": 1}),
    "local": (lambda: fp.LocalClassifier(Local(in_features=0, num_classes=2, seed=0).eval()), {"per_node": 2}),
    "edge-blind": (lambda: fp.EdgeBlindClassifier(Blind(network()).eval(), features="constant"), {}),
    "none": (lambda: Undefended(network(), features="degree"), {}),
}


@pytest.mark.parametrize("name", DEFENCES)
def test_a_run_from_python_is_one_like_any_other(name, tmp_path, monkeypatch, capsys):
    make, question = DEFENCES[name]
    defence, out = make(), tmp_path / "run"
    graphs = Dataset(WITH_LABELS if "labels" in name else GRAPHS, class_names=["even", "odd"], name="mine")
    made = fp.certify_run(defence, graphs, out=out, **question)
    seed = {"seed": 0} if "samples" in question else {}
    assert [(c.label, c.radius) for c in made] == [
        (c.label, c.radius) for c in defence.certify_all(graphs, **question, **seed)
    ]
    assert call(monkeypatch, capsys, "verify", out).code == 0
    shown = read_run(out, "mine")  # what a report shows
    assert [row["radius"] for row in shown.rows] == [c.radius for c in made]
    loaded = fp.load_run(out)
    assert loaded.certificates == made
    assert (loaded.class_names, loaded.settings.data) == (graphs.class_names, "mine")
    assert [graph.topology for graph in loaded.graphs] == [graph.topology for graph in graphs]
    assert loaded.graphs.labels.tolist() == graphs.labels.tolist()


def test_it_continues_and_refuses_other_settings(tmp_path):
    graphs, sizes = topologies(8), []

    def counted(shown):
        sizes.append(len(shown))
        return by_edges(shown)

    smooth = fp.SmoothedClassifier(counted, NOISE, num_classes=8)
    first = fp.certify_run(smooth, graphs, out=tmp_path / "run", samples=200)
    before = sum(sizes)
    assert fp.certify_run(smooth, graphs, out=tmp_path / "run", samples=200) == first
    assert sum(sizes) - before < 2000, "the probes alone"
    with pytest.raises(fp.InputError, match="samples = 200; asked for samples = 300"):
        fp.certify_run(smooth, graphs, out=tmp_path / "run", samples=300)
    with pytest.raises(fp.InputError, match="data_sha256"):
        fp.certify_run(smooth, graphs[1:], out=tmp_path / "run", samples=200)
    other = fp.SmoothedClassifier(lambda shown: [0] * len(shown), NOISE, num_classes=8)
    with pytest.raises(fp.InputError, match="model"):
        fp.certify_run(other, graphs, out=tmp_path / "run", samples=200)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (lambda: (by_edges, topologies(8)), "defended must be a defended classifier"),
        (lambda: (fp.SmoothedClassifier(by_edges, NOISE, num_classes=8), []), "at least one graph"),
        (lambda: (fp.SmoothedClassifier(by_edges, NOISE, num_classes=3), topologies(8)), "has the label 7"),
    ],
)
def test_what_is_refused_leaves_no_folder(arguments, sentence, tmp_path):
    with pytest.raises(fp.InputError, match=sentence):
        fp.certify_run(*arguments(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_loaders_and_data_sets_are_taken_everywhere(tmp_path):
    graphs = topologies(8)
    pyg = [graph.to_pyg() for graph in graphs]
    loader = DataLoader(pyg, batch_size=3)
    smooth = fp.SmoothedClassifier(by_edges, NOISE, num_classes=8)
    expected = smooth.certify_all(graphs, samples=64, seed=0)
    for source in (loader, next(iter(DataLoader(pyg, batch_size=8))), DataLoader(pyg, collate_fn=list, batch_size=2)):
        certificates = smooth.certify_all(source, samples=64, seed=0)
        assert [c.counts for c in certificates] == [c.counts for c in expected]
    assert len(fp.to_dataframe(expected, loader)["label"]) == 8
    assert len(Dataset(loader)) == 8
    assert len(fp.datasets.split(loader, train=4).test) == 4
    assert fp.certify_run(smooth, loader, out=tmp_path / "run", samples=64) == expected


@pytest.mark.parametrize("own", [False, True])
def test_the_features_in_run_json_are_those_that_the_model_saw(tmp_path, own):
    """The default is the graph's own features, or degrees where it has none: the run says which; and the model by its weights."""
    graphs = [graph.replaced(node_features=np.ones((graph.num_nodes, 1)) if own else None) for graph in topologies(8)]
    smooth = fp.SmoothedClassifier(fp.models.GCN(in_features=1, num_classes=8, seed=0).eval(), NOISE)
    fp.certify_run(smooth, graphs, out=tmp_path / "run", samples=64)
    settings = fp.load_run(tmp_path / "run").settings
    assert settings.features == ("own" if own else "degree")
    fp.models.save(smooth.model, tmp_path / "model")
    assert settings.model_sha256 == fp.models.load_metadata(tmp_path / "model").weights_hash
    bare = [graph.replaced(label=None) for graph in graphs]
    degrees = fp.SmoothedClassifier(by_edges, NOISE, num_classes=3, features=lambda graph: graph.degrees[:, None])
    fp.certify_run(degrees, bare, out=tmp_path / "bare", name="unlabelled", samples=64, workers=2)
    loaded = fp.load_run(tmp_path / "bare")
    assert (loaded.settings.data, {graph.label for graph in loaded.graphs}) == ("unlabelled", {None})
    assert "lambda" in loaded.settings.features
    assert "unlabelled" in report_page([read_run(tmp_path / "bare", "mine")], figures=[])


def altered(value):
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case [first, *rest]:
            return [altered(first), *rest]
        case {}:
            key = next(iter(value), "more")
            return {**value, key: altered(value.get(key))}
        case []:
            return [1]
    return 1


def keys_of(content):
    for key, value in content.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, *rest) for rest in keys_of(value))


def told(folder):
    """Whether verify finds something wrong with the run, or refuses to read it."""
    try:
        return bool(problems_of_run(folder))
    except fp.InputError:
        return True


@pytest.mark.parametrize("name", DEFENCES)
def test_whatever_is_altered_is_told_of(name, tmp_path):
    make, question = DEFENCES[name]
    folder = tmp_path / "run"
    made = fp.certify_run(make(), WITH_LABELS if "labels" in name else GRAPHS, out=folder, **question)
    assert fp.load_run(folder).certificates == made
    assert problems_of_run(folder) == []
    content = json.loads((folder / "run.json").read_text())
    for key in keys_of(content):
        changed = copy.deepcopy(content)
        place = changed
        for part in key[:-1]:
            place = place[part]
        place[key[-1]] = altered(place[key[-1]])
        (folder / "run.json").write_text(json.dumps(changed))
        assert told(folder), key
    (folder / "run.json").write_text(json.dumps(content))
    schema, rows = parquet.read_schema(folder / TABLE_FILE), read_table(folder)
    empty = {"string": "x"}  # what is put where nothing is, by the kind of column; else 1
    cells = {
        column: empty.get(kind, 1) if rows[0][column] is None else altered(rows[0][column])
        for column, kind in COLUMNS.items()
    }
    tables = {column: [{**rows[0], column: cell}, *rows[1:]] for column, cell in cells.items()}
    tables |= {
        "a better row before the true one": [{**rows[0], "radius": 15}, *rows],
        "a row twice": [*rows, rows[0]],
        "a row too few": rows[1:],
        "a row too many": [*rows, {**rows[0], "graph": 9}],
        "another order": rows[::-1],
    }
    for change, changed_rows in tables.items():
        parquet.write_table(pyarrow.Table.from_pylist(changed_rows, schema=schema), folder / TABLE_FILE)
        assert told(folder), change
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), folder / TABLE_FILE)
    assert problems_of_run(folder) == []
