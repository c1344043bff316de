"""``flipproof protect``: what it hands over, that it resumes, and that test graphs are looked at once, at the end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipproof.datasets import Dataset, folder, topologies
from flipproof.datasets.sources import DataSource
from flipproof.models import load_metadata
from flipproof.runs.run_folder import StudySettings, open_run
from flipproof.studies import candidate, tuning
from flipproof.studies.candidate import Candidate, baselines
from flipproof.studies.experiment import Experiment
from flipproof.studies.search_space import space
from flipproof.studies.threat import Threat
from flipproof.studies.trial import Trial
from support.certified_runs import run_command
from support.command_line import Command, Outcome, write_graphs

KEYS = {"defence", "settings", "accuracy", "certified_accuracy", "interval", "edge_blind", "undefended"}
QUICK = shlex.split("--epochs 24 --time 5m --workers 1 --test 0.25 --validation 0.25")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graphs(tmp_path_factory.mktemp("protect") / "graphs", count=32, nodes=lambda index: 7 + index % 3)


@pytest.fixture(scope="module", autouse=True)
def few_defences() -> Iterator[None]:
    """Those that need no minute, and no figures."""
    names = ("local", "edge-blind", "none")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidate, "spaces", lambda: [space(name) for name in names])
        patch.setattr("flipproof.report.drawing.write_figures", lambda *drawn: [])
        yield


@pytest.fixture(scope="module")
def whole(graphs: Path, few_defences: None) -> Path:
    """What ``protect`` leaves when nothing stops it."""
    out = graphs.parent / "whole"
    run_command(graphs.parent, "protect", "--data", str(graphs), "--radius", "1", *QUICK, "--out", str(out))
    return out


def trials(out: Path) -> dict[str, bytes]:
    with open_run(out, StudySettings) as run:
        return {name: run.store.load(name) for name in run.store.finished()}


def test_what_it_hands_over_is_what_the_commands_make(
    graphs: Path, whole: Path, tmp_path: Path, command: Command
) -> None:
    def typed(*words: object) -> Outcome:
        done = command(*words)
        assert done.code == 0, done.err
        return done

    out, told = whole, json.loads((whole / "protect.json").read_text())
    assert told.keys() >= KEYS
    assert told["defence"] == "local"
    low, high = told["interval"]
    assert low <= told["certified_accuracy"]["1"] == told["withstood"] <= high
    assert told["withstood"] >= told["edge_blind"]
    assert told["accuracy"] == told["certified_accuracy"]["0"]
    # every trial is kept, the losers of the first round have no second one
    kept = {name for name in trials(out) if not name.startswith("final")}
    assert len(kept) == len(told["trials"])
    assert {"edge-blind", "clean, 3 epochs", "local 3, 3 epochs"} <= kept
    assert sum(name.startswith("local") and name.endswith(" 3 epochs") for name in kept) == 6
    assert sum(name.startswith("local") and name.endswith(" 24 epochs") for name in kept) <= 2
    assert sum(name.startswith("local") and name.endswith(" 48 epochs") for name in kept) <= 1  # while it helps
    # certified were the test graphs, all of them, with a model that knows its data
    certified = json.loads((out / "run" / "run.json").read_text())["settings"]
    split = DataSource(str(graphs), test=0.25).split(folder(graphs))
    assert certified["graphs"] == split.test_indices.tolist()
    summary = json.loads(typed("certify", "--model", out / "model", "--out", tmp_path / "r", "--json").out)
    assert summary["certified_accuracy"]["1"] == told["certified_accuracy"]["1"]
    typed("verify", out / "run")
    assert (out / "run" / "report.html").is_file()
    # the same weights without the search
    train = shlex.split(told["next"][0].replace("MODEL", str(tmp_path / "m")))
    typed(*train[1:], "--quiet")
    assert load_metadata(tmp_path / "m").weights_hash == load_metadata(out / "model").weights_hash
    # in words, and nothing is done again
    before = trials(out)
    said = typed("protect", "--data", graphs, "--radius", 1, *QUICK, "--out", out).out
    assert trials(out) == before
    for words_of_it in ("chosen: local", "95% interval", "a classifier that ignores edges", "Python: flipproof.load"):
        assert words_of_it in said
    namespace: dict[str, Any] = {"graph": folder(graphs)[0]}
    exec("import flipproof; answer = " + told["predict"], namespace)
    assert namespace["answer"].label in (0, 1)


def test_stopped_anywhere_it_ends_the_same(
    graphs: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    words = ("protect", "--data", graphs, "--radius", 1, *QUICK, "--quiet")
    out, work, left = tmp_path / "stopped", tuning.try_out, iter(range(4))

    def stopped(experiment: Experiment, trial: Trial) -> dict[str, Any]:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return work(experiment, trial)

    with monkeypatch.context() as patched:
        patched.setattr(tuning, "try_out", stopped)
        assert command(*words, "--out", out).code == 130
    before = trials(out)
    assert len(before) == 4
    assert command(*words, "--out", out).code == 0
    after = trials(out)
    assert before.items() <= after.items()
    assert after.keys() == trials(whole).keys()
    for name in ("model", "edge_blind", "undefended"):
        weights = [(run / name / "weights.safetensors").read_bytes() for run in (whole, out)]
        assert weights[0] == weights[1]
    tables = [(run / "run" / "certificates.parquet").read_bytes() for run in (whole, out)]
    assert tables[0] == tables[1]
    # another attack is another search
    refused = command(*words[:4], 2, *words[5:], "--out", out)
    assert refused.code == 2
    assert "attack = 1; asked for attack = 2" in refused.err


def test_test_graphs_have_no_part_in_the_choice(graphs: Path, tmp_path: Path) -> None:
    """With other edges in all test graphs, every trial says the same."""
    source = DataSource(str(graphs), test=0.25, validation=0.25)
    other = write_graphs(tmp_path / "graphs", count=32, nodes=lambda index: 7 + index % 3)
    data = folder(graphs)
    for index in source.split(data).test_indices:
        path = [f"{node} {node + 1}\n" for node in range(data[index].num_nodes - 1)]
        (other / f"{data[index].name}").write_text("".join(path))
    changed = folder(other)
    assert any(changed[index].topology != data[index].topology for index in range(len(data)))
    said = []
    for path in (graphs, other):
        source = DataSource(str(path), test=0.25, validation=0.25)
        experiment = Experiment(source, Threat(radius=1), ladder=(2,)).prepared()
        trials_of = [tuning.try_out(experiment, Trial(one, 2)) for one in (*baselines(), *experiment.candidates)]
        said.append([{key: value for key, value in one.items() if "seconds" not in key} for one in trials_of])
    assert said[0] == said[1]


def test_where_edges_cannot_help_the_edge_blind_network_is_handed_over(tmp_path: Path, command: Command) -> None:
    """Rings of two sizes: the number of nodes says it all."""
    own = tmp_path / "sizes"
    own.mkdir()
    for index in range(32):
        size = 5 if index % 2 else 12
        (own / f"{index}.edges").write_text("".join(f"{node} {(node + 1) % size}\n" for node in range(size)))
    table = "".join(f"{index}.edges,{'small' if index % 2 else 'large'}\n" for index in range(32))
    (own / "labels.csv").write_text(table)
    out = tmp_path / "p"
    words = ("protect", "--data", own, "--adds", 3, "--removes", 2, *QUICK, "--epochs", 30, "--out", out)
    done = command(*words)
    assert done.code == 0, done.err
    assert "nothing beats ignoring edges" in done.out
    assert "handed over" in done.out
    told = json.loads((out / "protect.json").read_text())
    assert told["defence"] == "edge-blind"
    assert told["withstood"] == told["edge_blind"] == 1
    assert load_metadata(out / "model").metadata["defence"] == {"name": "edge-blind"}
    assert not (out / "edge_blind").exists()  # it is the model


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "say which attack is to be withstood"),
        ("--radius 100000", "no graph has room for 100000 flips: the largest one has"),
        ("--radius 1 --time 10", "--time must be a time such as 90s"),
        ("--radius 1 --time 0m", "--time must be a time such as 90s"),
        ("--radius 1 --validation 0", "--validation must be above 0"),
        ("--radius 1 --features smell", "features must be one of"),
    ],
)
def test_what_cannot_be_used_is_refused(
    words: str, sentence: str, graphs: Path, tmp_path: Path, command: Command
) -> None:
    done = command("protect", "--data", graphs, *words.split(), "--out", tmp_path / "p")
    assert done.code == 2
    assert sentence in done.err
    assert not (tmp_path / "p").exists()


def test_every_defence_proposes_settings_for_the_attack() -> None:
    graphs = topologies(16)
    proposed = {
        name: [Candidate(kind, settings).title for settings in kind.candidates(graphs, Threat(3))]
        for name in ("local", "voting", "edge-blind", "none")
        for kind in [space(name)]
    }
    plain, counting = ["local 3", "local 4", "local 7"], ["local counts 3", "local counts 4", "local counts 7"]
    assert proposed["local"] == [*plain, *counting]
    assert proposed["voting"][:2] == ["voting 7", "voting 13"]
    assert proposed["edge-blind"] == []
    both = space("local").candidates(graphs, Threat(adds=2, removes=1))
    assert both[:2] == [{"budget": [2, 1]}, {"budget": [4, 2]}]
    assert both[2:] == [{**budget, "counts_only": True} for budget in both[:2]]
    labelled = Dataset([graph.replaced(node_features=np.eye(graph.num_nodes)[:, :3]) for graph in graphs])
    assert [*space("local").candidates(labelled, Threat(3))] == [{"budget": budget} for budget in (3, 4, 7)]
