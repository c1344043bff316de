"""The voting defence on the command line: train, certify, continue, export, attack."""

import json
from pathlib import Path

import pytest

import flipproof as fp
from flipproof.runs.run_folder import CertifySettings
from support.command_line import Shell

VOTING = ["certify", "--model", "own:make", "--defence", "voting", "--groups", 4, "--data", "graphs"]


@pytest.fixture(autouse=True)
def sub_graphs(shell: Shell) -> None:
    """A model that tells sub-graphs with many edges from those with few."""
    shell.write(rule="3 * graph.num_edges > graph.num_nodes", nodes=8)


def test_the_report_of_a_proof_says_that_it_is_certain(shell: Shell) -> None:
    shell.done(*VOTING, "--out", "run", "--quiet")
    shell.done("report", "run", "--quiet")
    assert "These proofs hold with certainty: nothing was sampled." in Path("run/report.html").read_text()


def test_a_model_remembers_its_groups(shell: Shell) -> None:
    """Train on sub-graphs, certify and attack without another word about groups."""
    trained = shell.done("train", "--data", "graphs", "--groups", 3, "--epochs", 2, "--out", "model")
    assert "voting: groups 3" in trained.out
    assert fp.models.load_metadata("model").metadata["defence"] == {"name": "voting", "groups": 3}
    shell.done("certify", "--model", "model", "--out", "run", "--quiet")
    assert CertifySettings.read(Path("run")).defence == {"name": "voting", "groups": 3}
    assert {row["method"] for row in shell.rows("run")} == {"voting"}
    attack = ["attack", "--model", "model", "--budget", 2, "--certificates"]
    summary = json.loads(shell.done(*attack, "run", "--out", "attacks", "--json").out)
    assert set(summary["accuracy_under_attack"]) == {"base", "defended"}
    assert summary["attacks_within_a_certified_radius"] == 0
    assert summary["certified_accuracy"] <= summary["accuracy_under_attack"]["defended"]
    shell.done("certify", "--model", "model", "--groups", 5, "--out", "five", "--quiet")
    other = shell(*attack, "five", "--out", "others")
    assert other.code == 2
    assert "--certificates five has another defence than the attack" in other.err
    # smoothing a model that was trained on sub-graphs is possible, and must be asked for
    shell.done("certify", "--model", "model", "--keep", 0.9, "--samples", 20, "--out", "smoothed", "--quiet")
    assert CertifySettings.read(Path("smoothed")).defence["name"] == "smoothing"


def test_a_model_folder_of_an_earlier_version_still_says_its_groups(shell: Shell) -> None:
    model = fp.models.GIN(1, 2, hidden=4, seed=0).eval()
    fp.models.save(model, "model", features="degree", groups=3, data=str(Path("graphs").resolve()))
    shell.done("certify", "--model", "model", "--out", "run", "--quiet")
    assert CertifySettings.read(Path("run")).defence == {"name": "voting", "groups": 3}


def test_an_edge_blind_model_needs_no_other_defence(shell: Shell) -> None:
    blind = ["train", "--data", "graphs", "--model", "edge-blind", "--epochs", 1, "--out", "blind"]
    others = "--groups belongs to voting, and the defence here is edge-blind (leave it out)"
    assert others in shell(*blind, "--groups", 3).err
    named = shell.done("train", "--data", "graphs", "--defence", "edge-blind", "--out", "b", "--json")
    assert json.loads(named.out)["network"] == "edge-blind"
    shell.done(*blind)
    shell.done("certify", "--model", "blind", "--out", "run")
    for row in shell.rows("run"):
        assert (row["method"], row["radius"], row["alpha"]) == ("edge-blind", row["num_slots"], 0.0)
    assert shell("verify", "run").code == 0
    assert others in shell("certify", "--model", "blind", "--groups", 3, "--out", "new").err
    sampled = shell("certify", "--model", "blind", "--defence", "edge-blind", "--samples", 5, "--out", "asked")
    assert "--samples belongs to smoothing, and the defence here is edge-blind" in sampled.err


def test_the_undefended_model_is_certified_at_radius_0(shell: Shell) -> None:
    shell.done("certify", "--model", "own:make", "--defence", "none", "--data", "graphs", "--out", "run", "--quiet")
    assert {(row["method"], row["radius"], row["alpha"]) for row in shell.rows("run")} == {("none", 0, 0.0)}
    assert shell("verify", "run").code == 0


def test_depth_and_budget_are_options_and_part_of_the_run(shell: Shell) -> None:
    shell.write()
    certify = ["certify", "--model", "own:make", "--data", "graphs", "--part", "all", "--groups", 3, "--workers", 1]
    orders = {"counts": ["--depth", 0], "one": ["--depth", 1], "budget": ["--calls", 50], "auto": []}
    radii, questions = {}, {}
    for name, options in orders.items():
        summary = json.loads(shell.done(*certify, *options, "--json", "--out", name).out)
        radii[name] = summary["average_certified_radius"]
        shell.done("verify", name)
        questions[name] = CertifySettings.read(Path(name)).question
    assert questions == {
        "counts": {"depth": 0, "calls": None},
        "one": {"depth": 1, "calls": None},
        "budget": {"depth": None, "calls": 50},
        "auto": {"depth": None, "calls": 4096},
    }
    assert radii["counts"] <= radii["budget"] <= radii["auto"]
    assert radii["counts"] < radii["one"] <= radii["auto"]
    refused = shell(*certify, "--out", "one", "--depth", 2)
    assert (refused.code, "depth = 1" in refused.err) == (2, True)


def test_a_model_is_trained_against_flips(shell: Shell) -> None:
    options = ["--groups", 2, "--flips", 1, "--epochs", 2, "--hidden", 8]
    shell.done("train", "--data", "graphs", *options, "--out", "model", "--json")
    assert "'flips': 1" in str(json.loads(Path("model/config.json").read_text()))
    attack = ["attack", "--model", "model", "--budget", 3, "--attacks", "known", "--json", "--workers", 1]
    shell.done(*attack, "--out", "attacked")


def test_feature_groups_are_trained_certified_verified_attacked_and_reported(shell: Shell) -> None:
    for index in range(12):
        edges = [(node, (node + 1) % 6) for node in range(6)] + ([(0, 2), (0, 3)] if index % 2 else [])
        nodes = [{"id": node, "kind": f"k{(node + index) % 3}"} for node in range(6)]
        links = [{"source": u, "target": v} for u, v in edges]
        Path("labelled").mkdir(exist_ok=True)
        Path(f"labelled/{index}.json").write_text(json.dumps({"nodes": nodes, "edges": links}))
    Path("labelled/labels.csv").write_text("".join(f"{index}.json,{index % 2}\n" for index in range(12)))
    options = ["--groups", 3, "--feature-groups", 2, "--epochs", 2]
    shell.done("train", "--data", "labelled", *options, "--out", "model")
    defence = {"name": "voting", "groups": 3, "feature_groups": 2}
    assert fp.models.load_metadata("model").metadata["defence"] == defence
    shell.done("certify", "--model", "model", "--out", "run", "--quiet")
    assert CertifySettings.read(Path("run")).defence == defence
    assert all(row["feature_radius"] is not None for row in shell.rows("run"))
    assert shell("verify", "run").code == 0
    attack = ["attack", "--model", "model", "--budget", 1, "--changes", 1, "--certificates", "run", "--workers", 1]
    summary = json.loads(shell.done(*attack, "--out", "attacks", "--json").out)
    assert summary["changes"] == 1
    assert summary["attacks_within_a_certified_radius"] == 0
    assert summary["certified_accuracy"] <= summary["accuracy_under_attack"]["defended"]
    assert "beside up to 1 changed labels or bits" in " ".join(shell.done(*attack, "--out", "attacks").out.split())
    shell.done("report", "run", "--attack", "attacks", "--quiet")
    assert '"changes":' in Path("run/report.html").read_text()
    refused = shell("certify", "--model", "model", "--depth", 1, "--out", "priced")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "knows no prices" in refused.err
    real = shell("attack", "--model", "own:make", "--data", "graphs", "--changes", 1, "--out", "none")
    assert (real.code, real.err.count("\n")) == (2, 1)
    assert "changes need node features that are labels or bits" in real.err
