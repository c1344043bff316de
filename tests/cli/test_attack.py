"""The command: what it writes, what it continues, what it refuses; and the curves beside the certificates."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from flipproof.attacks.command import Targets, attack_graphs
from typer.testing import CliRunner

import flipproof as fp
from flipproof.cli import app
from flipproof.runs.folder import Run
from support.attacked import trained


def run_attack(folder: Path, count: int = 4, **changes: object) -> dict[str, object]:
    gcn, test = trained("gcn", None)
    gin, _ = trained("gin", 0.9)
    base = fp.classifiers.as_classifier(gin, num_classes=8, features="degree")
    targets = Targets(
        {
            "undefended": fp.classifiers.as_classifier(gcn, num_classes=8, features="degree"),
            "base": base,
            "smoothed": fp.SmoothedClassifier(base, fp.EdgeNoise(keep=0.9), num_classes=8),
        },
        fp.classifiers.as_classifier(
            fp.models.EdgeBlind(fp.models.GIN(1, 8, seed=0)).eval(), num_classes=8, features="constant"
        ),
    )
    graphs = {10 + index: test[index] for index in range(count)}
    arguments = {"options": {"samples": 24, "confirm_samples": 500}, **changes}
    return attack_graphs(Run(folder, {"command": "attack"}), targets, graphs, budget=2, **arguments)


def test_attacks_are_written_drawn_and_not_made_again(tmp_path: Path) -> None:
    radii = {10: (trained("gin", 0.9)[1][0].label, 0), 11: (None, -1)}
    summary = run_attack(tmp_path, radii=radii)
    under_attack = summary["accuracy_under_attack"]
    assert set(under_attack) == {"undefended", "base", "smoothed"}
    assert all(list(values) == sorted(values, reverse=True) and len(values) == 3 for values in under_attack.values())
    assert summary["certified_accuracy"] == [0.5, 0.0, 0.0]
    assert summary["attacks_within_a_certified_radius"] == 0
    assert 0 <= summary["edge_blind_accuracy"] <= 1
    rows = list(csv.DictReader((tmp_path / "attacks.csv").read_text().splitlines()))
    assert len(rows) == 12
    for row in rows:
        stored = json.loads((tmp_path / "attacks" / f"{int(row['graph']):05d}.json").read_text())[row["target"]]
        assert (str(stored["success"]), str(stored["size"])) == (row["success"], row["size"])
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {f"accuracy_under_attack.{kind}" for kind in ("svg", "pdf", "png", "csv")} <= figures
    assert "attacked_graphs_base.svg" in figures
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "attacks").iterdir()}
    (tmp_path / "attacks" / "00010.json").unlink()
    assert run_attack(tmp_path, radii=radii) == summary  # the missing one again, the others from their files
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "attacks").iterdir()}
    assert [path.name for path in after if after[path] != before[path]] == ["00010.json"]


def test_an_attack_within_a_certified_radius_is_told(tmp_path: Path) -> None:
    labels = [graph.label for graph in trained("gin", 0.9)[1][:5]]
    planted = {10 + index: (label, 99) for index, label in enumerate(labels)}
    summary = run_attack(tmp_path, 5, radii=planted, options={"samples": 96, "confirm_samples": 2000})
    assert summary["attacks_within_a_certified_radius"] == len(summary["gaps"]) > 0


def test_graphs_without_a_label_are_refused(tmp_path: Path) -> None:
    with pytest.raises(fp.InputError, match="graph 3 has none"):
        attack_graphs(Run(tmp_path, {}), Targets({}), {3: fp.Graph(2, [])}, budget=1)


def saved(folder: Path) -> dict[str, str]:
    gcn, _ = trained("gcn", None)
    gin, _ = trained("gin", 0.9)
    data = {"features": "degree", "data": "topologies:160", "data_seed": 0, "split_seed": 0, "test": 0.4}
    fp.models.save(gcn, folder / "clean", **data)
    fp.models.save(gin, folder / "noisy", noise=fp.EdgeNoise(keep=0.9), **data)
    return {"clean": str(folder / "clean"), "noisy": str(folder / "noisy")}


def test_from_the_command_line(tmp_path: Path) -> None:
    models = saved(tmp_path)
    certify = ["certify", "--model", models["noisy"], "--graphs", "2", "--samples", "300", "--out", str(tmp_path / "c")]
    assert CliRunner().invoke(app, [*certify, "--quiet"]).exit_code == 0
    attack = ["attack", "--model", models["noisy"], "--undefended", models["clean"], "--graphs", "2", "--budget", "1"]
    attack += ["--samples", "16", "--confirm-samples", "200", "--certificates", str(tmp_path / "c")]
    done = CliRunner().invoke(app, [*attack, "--json", "--out", str(tmp_path / "a")])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["certified_graphs"] == 2
    assert set(summary["accuracy_under_attack"]) == {"undefended", "base", "smoothed"}
    # another model's certificates are no measure
    wrong = CliRunner().invoke(app, [*attack, "--keep", "0.8", "--out", str(tmp_path / "b")])
    assert isinstance(wrong.exception, fp.InputError)
    assert "has another noise" in str(wrong.exception)
    # a run with other settings is refused, not mixed
    other = CliRunner().invoke(app, [*attack, "--seed", "1", "--out", str(tmp_path / "a")])
    assert isinstance(other.exception, fp.InputError)
    assert "seed" in str(other.exception)
    # a model without noise is attacked as it is
    plain = ["attack", "--model", models["clean"], "--graphs", "1", "--budget", "1", "--json", "--no-removes"]
    done = CliRunner().invoke(app, [*plain, "--out", str(tmp_path / "d")])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["accuracy_under_attack"]) == {"base"}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--attacks", "nonsense"], "attacks must be among"),
        (["--samples", "0"], "samples must be an integer of at least 1"),
        (["--confirm-samples", "0"], "confirm_samples must be an integer of at least 1"),
        (["--alpha", "2"], "alpha must lie in"),
        (["--seed", "-1"], "seed must be an integer from 0"),
        (["--edge-blind", "{clean}"], "must be a model that sees no edges"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, option: list[str], message: str) -> None:
    models = saved(tmp_path)
    given = [part.format(**models) for part in option]
    done = CliRunner().invoke(
        app, ["attack", "--model", models["clean"], "--graphs", "1", "--out", str(tmp_path / "x"), *given]
    )
    assert isinstance(done.exception, fp.InputError)
    assert message in str(done.exception)
    assert not (tmp_path / "x").exists()
