"""Every defence goes through every command, and a model folder remembers its own."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import flipproof as fp
from flipproof.report.reading import read_run
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.saved_run import load_run
from support.command_line import write_molecules

LITTLE = ["--workers", 1, "--json"]


# options of train, of certify and predict, the defence in words, the method, the axes of the grid
EVERY = {
    "smoothing": (["--keep", 0.9], ["--samples", 200], "keep 0.9", "influence", None),
    "labels": (["--keep", 0.9, "--label-keep", 0.9], ["--samples", 800], "keep 0.9 label keep 0.9", "influence", "labels"),
    "voting": (["--groups", 3], [], "voting 3", "voting", None),
    "flips": (["--groups", 2, "--flips", 1], ["--depth", 1], "voting 2", "voting", None),
    "features": (["--groups", 3, "--feature-groups", 2], [], "voting 3 feature groups 2", "voting", "nodes"),
    "local": (["--model", "local", "--budget", 2], ["--nodes", 1], "local 2", "local", None),
    "edge-blind": (["--model", "edge-blind"], [], "edge-blind", "edge-blind", None),
    "none": (["--defence", "none"], ["--defence", "none"], "clean", "none", None),
}  # fmt: skip


@pytest.mark.parametrize(("train", "asking", "title", "method", "changed"), EVERY.values(), ids=list(EVERY))
def test_every_defence_goes_through_every_command(train, asking, title, method, changed, shell):
    write_molecules(Path("molecules"))
    shell.done("train", "--data", "molecules", "--epochs", 25 if changed else 3, *train, "--out", "model", "-q")
    certify = ["certify", "--model", "model", *asking, *LITTLE, "--out", "run"]
    summary = json.loads(shell.done(*certify).out)
    assert (summary["defended_by"], summary["method"]) == (title, method)
    rows, sampled, baseline = shell.rows("run"), "--samples" in asking, method in ("edge-blind", "none")
    assert {(row["method"], row["alpha"] > 0) for row in rows} == {(method, sampled)}
    if method == "edge-blind":
        assert all(row["radius"] == row["num_slots"] for row in rows)
    if method == "none":
        assert {row["radius"] for row in rows} == {0}
    assert "verified" in shell.done("verify", "run").out
    predict = ["predict", "--model", "model", "molecules/0.json", "molecules/1.json", *asking, *LITTLE]
    answers = [json.loads(line) for line in shell.done(*predict).out.splitlines()]
    assert [answer["name"] for answer in answers] == ["0.json", "1.json"]
    for answer in answers:
        assert answer["label"] in ("carbon", "other", None)
        assert answer["abstains"] == (answer["label"] is None) == (answer["radius"] == -1)
        assert (answer["seed"] is not None) == sampled
    attack = ["attack", "--model", "model", "--budget", 1, "--graphs", 3, *LITTLE, "--out", "attacks"]
    attack += ["--samples", 20, "--confirm-samples", 200] * sampled + ["--changes", 1] * bool(changed)
    attacked = json.loads(shell.done(*attack, *([] if baseline else ["--certificates", "run"])).out)
    assert set(attacked["accuracy_under_attack"]) == ({"base"} if baseline else {"base", "defended"})
    if not baseline:
        assert attacked["attacks_within_a_certified_radius"] == 0
    shell.done("report", "run", *([] if baseline else ["--attack", "attacks"]), "-q")
    page = Path("run/report.html").read_text()
    assert ("These proofs hold with certainty" in page) == (not sampled and method != "edge-blind")
    if changed:
        certificates = load_run("run").certificates
        for row, certificate in zip(rows, certificates, strict=True):
            assert row["feature_radius"] == certificate.feature_radius
            assert json.loads(row["joint_grid"])["axes"] == ["flips", f"changed {changed}"]
        grids = [one.joint_grid for one, row in zip(certificates, rows, strict=True) if row["correct"]]
        for (flips, changes), count in np.ndenumerate(read_run(Path("run"), "mine").joint_counts()):  # the heat map
            assert count == sum(bool(grid[flips : flips + 1, changes : changes + 1].any()) for grid in grids)
        assert "Changed features" in page
        assert "feature_radius" in answers[0]


def test_a_model_remembers_its_groups_unless_others_are_typed(shell):
    shell.write(rule="3 * graph.num_edges > graph.num_nodes", nodes=8)  # tells sub-graphs by their numbers of edges
    trained = shell.done("train", "--data", "graphs", "--groups", 3, "--epochs", 2, "--out", "model")
    assert "voting: groups 3" in trained.out
    assert fp.models.load_metadata("model").metadata["defence"] == {"name": "voting", "groups": 3}
    shell.done("certify", "--model", "model", "--groups", 5, "--out", "five", "--quiet")
    assert CertifySettings.read(Path("five")).defence == {"name": "voting", "groups": 5}
    other = shell("attack", "--model", "model", "--budget", 1, "--certificates", "five", "--out", "others")
    assert (other.code, "--certificates five has another defence than the attack" in other.err) == (2, True)
    # smoothing a model that was trained on sub-graphs is possible, and must be asked for
    shell.done("certify", "--model", "model", "--keep", 0.9, "--samples", 20, "--out", "smoothed", "--quiet")
    assert CertifySettings.read(Path("smoothed")).defence["name"] == "smoothing"


def test_depth_and_budget_are_options_and_part_of_the_run(shell):
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


def test_noise_of_either_kind_is_changed_alone(shell):
    write_molecules(Path("molecules"))
    shell.done(*shlex.split("train --data molecules --keep 0.95 --label-keep 0.9 --epochs 2 --out model -q"))
    for typed, title in (
        (["--keep", 0.8], "keep 0.8 label keep 0.9"),
        (["--label-keep", 0.8], "keep 0.95 label keep 0.8"),
        (["--bit-add", 0.1, "--bit-remove", 0.2], "keep 0.95 bit add 0.1 bit remove 0.2"),
    ):
        out = f"run{typed[0]}"
        done = shell.done("certify", "--model", "model", *typed, "--samples", 50, "--out", out, "--json")
        assert json.loads(done.out)["defended_by"] == title
