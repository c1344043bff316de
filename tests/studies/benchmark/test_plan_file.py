"""The config file: what is read from it, and the one sentence for everything that cannot be used."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from command_line import call
from flipproof.defences import defence_class
from flipproof.errors import InputError
from flipproof.studies.benchmark.plan_file import Plan, parse_config, read_config
from flipproof.studies.candidate import Candidate

GOOD = """
splits = 2
smoothing = [{ keep = 0.9 }]
models = ["gin", "gcn"]
[training]
epochs = 5
average = 0.9
[networks.gcn]
hidden = 16
training = { epochs = 7 }
"""


def defences(plan: Plan) -> list[str]:
    return [candidate.title for candidate in plan.candidates]


def test_a_data_set_overrides_what_stands_at_the_top() -> None:
    text = f"""{GOOD}
    [[data]]
    name = "topologies:16"
    [[data]]
    name = "MUTAG"
    splits = [4, 9]
    smoothing = [{{ add = 0.01, remove = 0.2 }}]
    voting = [3]
    samples = 50
    training = {{ average = 0 }}
    """
    first, second = parse_config(tomllib.loads(text), "b.toml", root="data")
    assert (first.splits, first.asked["samples"], defences(first)) == ((0, 1), 2000, ["keep 0.9"])
    assert (second.splits, second.asked["samples"]) == ((4, 9), 50)
    assert defences(second) == ["add 0.01 remove 0.2", "voting 3"]
    assert second.candidates[1] == Candidate(defence_class("voting"), {"groups": 3})
    assert [network.training["epochs"] for network in second.networks] == [5, 7]
    assert [network.training["average"] for network in first.networks + second.networks] == [0.9, 0.9, 0, 0]
    assert second.networks[1].arguments == {"hidden": 16}
    assert second.source.root == "data"


DATA = '\n[[data]]\nname = "topologies:16"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("splits = ", "b.toml is not a TOML file: "),
        (GOOD, "data must be one [[data]] table"),
        (GOOD + "[[data]]\nfeatures = 'own'", "data[0].name must be topologies, a TU name"),
        (GOOD + DATA + DATA, "data[1].name 'topologies:16' is there twice"),
        ("smothing = [{ keep = 0.9 }]" + DATA, "smothing is not a key of a benchmark (did you mean smoothing?)"),
        (GOOD + DATA + "wrong = 1", "data[0].wrong is not a key"),
        (DATA, "data[0].name has no defence to compare (add one of smoothing, voting"),
        ("smoothing = [{ keep = 0.3 }]" + DATA, "data[0].smoothing: keep must lie in (0.5, 1); got 0.3"),
        ("smoothing = [{ kep = 0.9 }]" + DATA, "data[0].smoothing: smoothing takes tables with keep, add, remove; got"),
        ("smoothing = [{ keep = 0.9 }, { keep = 0.9 }]" + DATA, "none of them twice"),
        ("smoothing = [{ keep = 0.9 }, { add = 0.1, remove = 0.1 }]" + DATA, "none of them twice"),
        ("smoothing = { keep = 0.9 }" + DATA, "data[0].smoothing must be a list of settings"),
        ("smoothing = [0.9]" + DATA, "data[0].smoothing: smoothing takes tables with keep, add, remove; got 0.9"),
        ("voting = [1]" + DATA, "data[0].voting: groups must be at least 2"),
        ("voting = ['3']" + DATA, "data[0].voting: groups must be an integer"),
        ("edge-blind = [3]" + DATA, "edge-blind is not a key of a benchmark"),
        ("voting = [3]\nmodels = ['gan']" + DATA, "data[0].models must be a list of networks among gcn"),
        ("voting = [3]\nmodels = ['edge-blind']" + DATA, "the edge-blind line is always there"),
        ("voting = [3]\nmodels = []" + DATA, "data[0].models must be at least one network"),
        ("voting = [3]\nsplits = 0" + DATA, "data[0].splits must be a whole number of at least 1"),
        ("voting = [3]\nsplits = []" + DATA, "data[0].splits must be a number of splits"),
        ("voting = [3]\nsplits = 'three'" + DATA, "data[0].splits must be a list of seeds"),
        ("voting = [3]\nsamples = 0" + DATA, "data[0].samples must be a whole number of at least 1; got 0"),
        ("voting = [3]\nalpha = 2" + DATA, "data[0].alpha: alpha must lie in (0, 1)"),
        ("voting = [3]\nmethods = ['magic']" + DATA, "data[0].methods: method must be one of"),
        ("voting = [3]\ntest = 1.5" + DATA, "data[0].test must be a share in (0, 1); got 1.5"),
        ("voting = [3]\nchoose_epoch = true\nvalidation = 0" + DATA, "data[0].validation must be above 0"),
        ("voting = [3]\nchoose_epoch = 'yes'" + DATA, "data[0].choose_epoch must be true or false"),
        ("voting = [3]\nfeatures = 'smell'" + DATA, "data[0].features: features must be one of"),
        ("voting = [3]\nbudgets = [[1]]" + DATA, "data[0].budgets must be a list of [additions, removals]"),
        ("voting = [3]\ntraining = { epoch = 3 }" + DATA, "data[0].training: epoch is not a training setting"),
        (
            "voting = [3]\ntraining = { epochs = 'all' }" + DATA,
            "data[0].training: epochs must be an integer of at least 1; got 'all'",
        ),
        ("voting = [3]\ntraining = { epochs = 0 }" + DATA, "epochs must be an integer of at least 1; got 0"),
        (
            "voting = [3]\ntraining = { average = 1 }" + DATA,
            "average must be a number of at least 0 and below 1; got 1",
        ),
        (
            "voting = [3]\ntraining = { schedule = 'fast' }" + DATA,
            "schedule must be one of one-cycle, cosine, constant",
        ),
        ("voting = [3]\ntraining = { class_weights = 1 }" + DATA, "class_weights must be true or false; got 1"),
        ("voting = [3]\ntraining = { consistency = 1 }" + DATA, "consistency compares copies of a graph; got copies=1"),
        ("voting = [3]\nnetworks = { gin = { training = { copies = 0 } } }" + DATA, "networks.gin: copies must be"),
        ("voting = [3]\ntraining = { seed = 5 }" + DATA, "data[0].training: seed is not a training setting"),
        ("voting = [3]\ntraining = 5" + DATA, "data[0].training must be a table [training]"),
        ("voting = [3]\nnetworks = { gin = { wide = 3 } }" + DATA, "data[0].networks.gin: config of gin does not fit"),
        ("voting = [3]\nnetworks = { gan = { hidden = 3 } }" + DATA, "gan is none of them"),
        ("voting = [3]\nroot = 3" + DATA, "data[0].root must be a text; got 3"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_key(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "b.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_config(path)
    assert sentence in str(refused.value)
    assert str(path) in str(refused.value)


def test_the_command_refuses_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "b.toml", tmp_path / "out"
    for text, sentence in (
        ("voting = [3]\nalpha = 0" + DATA, "b.toml: data[0].alpha"),
        (GOOD + "[[data]]\nname = 'MUTAG'", "--data must be topologies, a folder"),
        (GOOD + DATA + "features = 'own'", "the model needs node features and the graph has none"),
    ):
        path.write_text(text)
        done = call(monkeypatch, capsys, "benchmark", path, "--out", out)
        assert done.code == 2
        assert sentence in done.err
        assert done.err.count("\n") == 1
        assert not out.exists()
    missing = call(monkeypatch, capsys, "benchmark", tmp_path / "none.toml", "--out", out)
    assert missing.code == 2
    assert "there is no config file" in missing.err


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[3] / "benchmarks").glob("*.toml")), ids=lambda p: p.name
)
def test_the_configs_that_ship_are_in_order(path: Path) -> None:
    assert all(plan.networks and plan.candidates for plan in read_config(path))
