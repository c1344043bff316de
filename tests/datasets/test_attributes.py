"""Attributes of nodes in a folder: texts become one-hot columns, and nothing vanishes without a word."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.cli.describe_command import described
from support.command_line import call
from support.shared_data import data_root

NAN = float("nan")


def write(folder: Path, graphs: dict[str, list[dict[str, Any]]], **edge: Any) -> Path:
    """A folder of paths with these nodes, in two classes."""
    folder.mkdir(exist_ok=True)
    for name, nodes in graphs.items():
        content = {
            "nodes": [{"id": index, **node} for index, node in enumerate(nodes)],
            "edges": [{"source": index, "target": index + 1, **edge} for index in range(len(nodes) - 1)],
        }
        (folder / f"{name}.json").write_text(json.dumps(content))
    lines = [f"{name}.json,{'odd' if place % 2 else 'even'}\n" for place, name in enumerate(graphs)]
    (folder / "labels.csv").write_text("".join(lines))
    return folder


def atoms(text: str, **more: Any) -> list[dict[str, Any]]:
    return [{"element": letter, **more} for letter in text]


def test_texts_become_one_hot_columns_with_their_names(tmp_path: Path) -> None:
    data = fp.datasets.folder(write(tmp_path, {"a": atoms("CCO", mass=1), "b": atoms("NC", mass=2.5)}))
    assert data.feature_names == ["element=C", "element=N", "element=O", "mass"]
    features = data[1].node_features
    assert features is not None
    assert features.tolist() == [[0, 1, 0, 2.5], [1, 0, 0, 2.5]]
    for copy in (data[:1], data.subset([1]), data.with_classes(["odd", "even"]), pickle.loads(pickle.dumps(data))):
        assert copy.feature_names == data.feature_names


def test_everything_that_is_ignored_is_said_with_the_reason(tmp_path: Path) -> None:
    first = [
        {"element": "C", "mass": 1, "name": "p", "flag": "yes", "odd": 1, "only": 3},
        {"element": "O", "mass": 2, "name": "q", "flag": "yes", "odd": "two"},
        {"element": "C", "mass": 3, "name": "r", "flag": "yes", "odd": 3},
    ]
    second = [{"element": "C", "mass": 1, "name": "s", "flag": "yes", "odd": 1, "only": 1}]
    data = fp.datasets.folder(write(tmp_path, {"a": first, "b": second}, bond=2))
    words = {attribute.name: attribute.words for attribute in data.attributes}
    assert words == {
        "element": "2 categories, one-hot: C, O",
        "flag": "ignored: 'yes' at every node",
        "mass": "a number",
        "name": "ignored: 4 different texts at 4 nodes: names, not categories",
        "odd": "ignored: neither numbers nor texts at every node: 'two'",
        "only": "ignored: missing at 2 of 4 nodes, first at node 1 of a.json",
        "bond (of edges)": "ignored: an edge that the noise adds has none",
    }
    for name, what in words.items():
        assert any(name in line and what in line for line in data.describe_features().splitlines())


@pytest.mark.parametrize(
    ("mass", "words"), [(NAN, r"finite; got nan \(fill it in"), (1e40, r"a number of single precision, .*1e\+40")]
)
def test_a_number_that_is_no_feature_is_refused_with_its_node(mass: float, words: str, tmp_path: Path) -> None:
    write(tmp_path, {"a": atoms("CO", mass=1), "b": [*atoms("C", mass=1), *atoms("O", mass=mass)]})
    with pytest.raises(fp.InputError, match=rf"b\.json: mass of node 1 must be {words}"):
        fp.datasets.folder(tmp_path)


def test_the_attribute_x_is_taken_alone(tmp_path: Path) -> None:
    data = fp.datasets.folder(write(tmp_path, {"a": atoms("CO", x=[1, 2]), "b": atoms("CC", x=[0, 3])}))
    assert data.feature_names == ["x[0]", "x[1]"]
    assert np.array_equal(data[1].node_features, [[0, 3], [0, 3]])
    assert "x is there, and is taken alone" in data.describe_features()


def test_other_data_get_the_columns_of_the_model(tmp_path: Path) -> None:
    like = fp.datasets.folder(write(tmp_path / "one", {"a": atoms("CCO"), "b": atoms("NC")})).attributes
    other = write(tmp_path / "two", {"a": atoms("OO"), "b": atoms("O")})
    features = fp.datasets.folder(other, like=like)[0].node_features
    assert features is not None
    assert features.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert fp.datasets.folder(other, like=like).remarks == ()
    write(tmp_path / "two", {"a": atoms("OO", mass=1), "b": atoms("O")})
    (remark,) = fp.datasets.folder(other, like=like).remarks
    assert remark == "attributes that the model's data do not have, and that are not read: mass"
    write(tmp_path / "two", {"a": atoms("OF"), "b": atoms("O")})
    with pytest.raises(fp.InputError, match=r"element of node 1 must be one of C, N, O, .*; got 'F'"):
        fp.datasets.folder(other, like=like)
    write(tmp_path / "two", {"a": atoms("OO"), "b": [{}]})
    with pytest.raises(fp.InputError, match=r"b\.json: element of node 0 .*; it is missing"):
        fp.datasets.folder(other, like=like)


def test_the_real_sets_say_what_their_columns_are() -> None:
    data = fp.datasets.tu("MUTAG", data_root())
    assert len(data.feature_names) == data.num_node_features == 7
    assert data.attributes[-1].words == "ignored: an edge that the noise adds has none"
    assert len(fp.datasets.tu("ENZYMES", data_root()).feature_names) == 21


def test_graphs_of_several_classes() -> None:
    path, other = fp.Graph(3, [(0, 1), (1, 2)], label=0), fp.Graph(3, [(0, 2), (1, 2)], label=1)
    data = fp.datasets.Dataset([path, other, fp.Graph(3, [], label=1), path.replaced(edges=[(0, 1)])])
    assert described(data)["in_several_classes"] == 2


def test_the_categories_go_with_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("CCNO"), size=4 + place % 3)) for place in range(12)]
    data = write(tmp_path / "mine", {f"g{place}": atoms(word, note="n" * place) for place, word in enumerate(words)})
    asked = ("--data", data, "--epochs", 1, "--keep", 0.9, "--hidden", 4, "--out", tmp_path / "model")
    done = call(monkeypatch, capsys, "train", *asked)
    assert done.code == 0, done.err
    assert "element  3 categories, one-hot: C, N, O" in done.err
    assert "note     ignored: " in done.err or "note     12 categories" in done.err
    other = write(tmp_path / "other", {f"h{place}": atoms("OOOO", note="n") for place in range(4)})
    certify = ("certify", "--model", tmp_path / "model", "--samples", 20, "--workers", 1, "--part", "all")
    done = call(monkeypatch, capsys, *certify, "--data", other, "--out", tmp_path / "run")
    assert done.code == 0, done.err
    write(other, {f"h{place}": atoms("OOOX", note="n") for place in range(4)})
    done = call(monkeypatch, capsys, *certify, "--data", other, "--out", tmp_path / "again")
    assert done.code == 2
    assert "element of node 3 must be one of C, N, O" in done.err


def test_describe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "mine", {"a": atoms("CCO", bad="v"), "b": atoms("OCC", bad="v"), "c": atoms("NC", bad="v")})
    done = call(monkeypatch, capsys, "describe", "--data", data)
    assert done.code == 0, done.err
    for part in ("even", "odd", "element  3 categories, one-hot: C, N, O", "bad      ignored: 'v' at every node"):
        assert part in done.out
    assert "2 graphs also occur in another class" in done.out
    found = json.loads(call(monkeypatch, capsys, "describe", "--data", data, "--json").out)
    assert found["classes"] == {"even": 2, "odd": 1}
    assert found["in_several_classes"] == 2
    assert found["attributes"][1] == {"name": "element", "columns": 3, "categories": ["C", "N", "O"], "remark": ""}
    assert (found["different_graphs"], found["repeated_graphs"]) == (2, 2), (
        "a and b are one molecule, read from both ends"
    )
    reach = {entry["title"]: entry["radius"] for entry in found["defences"]}
    assert reach["keep 0.8"]["1,000 samples"] <= reach["keep 0.8"]["100,000 samples"]
    assert "2 graphs occur more than once, with other node numbers: 2 of 3 are different" in done.out
    assert f"flipproof protect --data {data} --radius 1" in done.out


def test_the_reach_that_is_described_is_that_of_votes_which_all_agree() -> None:
    graphs = fp.datasets.topologies(8)
    found = described(graphs)
    assert found["remarks"] == []
    entry = next(entry for entry in found["defences"] if entry["title"] == "keep 0.9")
    usual = next(graph for graph in graphs if graph.num_nodes == found["usual_nodes"])
    smooth = fp.SmoothedClassifier(lambda shown: [3] * len(shown), fp.EdgeNoise(keep=0.9), num_classes=8)
    certificate = smooth.certify(usual, samples=1000, seed=0, method="votes")
    assert entry["radius"]["1,000 samples"] == certificate.radius > 0
    added = 0.1 * sum(graph.max_adds for graph in graphs) / 8
    assert f"adds {added:.1f} and removes" in entry["effect"]
