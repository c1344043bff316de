"""Attacks into a run folder: written as they are found, not made again, and set against the certificates."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import flipproof as fp
from flipproof.attacks import Options
from flipproof.defences.baselines import EdgeBlindClassifier, Undefended
from flipproof.defences.defence import described
from flipproof.engines import Processes
from flipproof.runs.attacking import Attacked, AttackWork, attack_into, certified_radii, read_attacks
from flipproof.runs.certifying import certify_into
from flipproof.runs.run_folder import AttackSettings, written_run
from support.attacked import trained
from support.runs import replace_evidence, settings_of, stored

SETTINGS = AttackSettings(
    data="made by hand",
    data_sha256="0" * 64,
    graphs=[10, 11, 12, 13],
    model_sha256="1" * 64,
    undefended_sha256=None,
    defence=None,
    features="degree",
    budget=2,
    attacks=["greedy"],
    constraints={},
    samples=24,
    confirm_samples=500,
    alpha=0.001,
    seed=0,
)


def smoothed() -> fp.SmoothedClassifier:
    return fp.SmoothedClassifier(trained("gin", 0.9)[0], fp.EdgeNoise(keep=0.9), features="degree")


def graphs(count: int = 4) -> dict[int, fp.Graph]:
    return {10 + index: trained("gin", 0.9)[1][index] for index in range(count)}


def run_attack(folder: Path, count: int = 4, search: Options | None = None, **changes: Any) -> Attacked:
    attacked = {
        "undefended": Undefended(trained("gcn", None)[0], features="degree"),
        "base": Undefended(trained("gin", 0.9)[0], features="degree"),
        "defended": smoothed(),
    }
    blind = EdgeBlindClassifier(fp.models.EdgeBlind(fp.models.GIN(1, 8, seed=0)).eval(), features="constant")
    search = search or {"samples": 24, "confirm_samples": 500}
    with written_run(folder, dataclasses.replace(SETTINGS, graphs=list(graphs(count)))) as run:
        return attack_into(run, AttackWork(attacked, graphs(count), 2, ["greedy"], search), edge_blind=blind, **changes)


def test_attacks_are_written_and_not_made_again(tmp_path: Path) -> None:
    radii = {10: (graphs()[10].label, 0), 11: (None, -1)}
    summary = run_attack(tmp_path, radii=radii).summary
    under_attack = summary["accuracy_under_attack"]
    assert set(under_attack) == {"undefended", "base", "defended"}
    assert all(list(values) == sorted(values, reverse=True) and len(values) == 3 for values in under_attack.values())
    assert summary["certified_accuracy"] == [0.5, 0.0, 0.0]
    assert summary["attacks_within_a_certified_radius"] == 0
    assert 0 <= summary["edge_blind_accuracy"] <= 1
    rows = list(csv.DictReader((tmp_path / "attacks.csv").read_text().splitlines()))
    assert len(rows) == 12
    _, found = read_attacks(tmp_path)
    for row in rows:
        result = found[int(row["graph"])][row["target"]]
        assert (str(result["success"]), str(result["size"])) == (row["success"], row["size"])
    before = stored(tmp_path)
    replace_evidence(tmp_path, 10, None)
    again = run_attack(tmp_path, radii=radii, engine=Processes(2))
    assert again.summary == summary  # the missing one again, the others from their rows
    assert stored(tmp_path) == before
    assert json.loads((tmp_path / "summary.json").read_text()) == {
        key: value for key, value in summary.items() if key != "run"
    }


def test_an_attack_within_a_certified_radius_is_told(tmp_path: Path) -> None:
    planted = {index: (graph.label, 99) for index, graph in graphs(5).items()}
    summary = run_attack(tmp_path, 5, {"samples": 96, "confirm_samples": 2000}, radii=planted).summary
    assert summary["attacks_within_a_certified_radius"] == len(summary["gaps"]) > 0


def test_graphs_without_a_label_are_refused(tmp_path: Path) -> None:
    work = AttackWork({"base": smoothed()}, {3: fp.Graph(2, [])}, 1, ["greedy"], {})
    with written_run(tmp_path, SETTINGS) as run, pytest.raises(fp.InputError, match="graph 3 has none"):
        attack_into(run, work)


def test_certificates_of_the_same_model_data_and_defence_are_a_measure_and_no_others(tmp_path: Path) -> None:
    defence, wanted = smoothed(), dataclasses.replace(SETTINGS, features="own", defence=described(smoothed().defence))
    with written_run(tmp_path, settings_of(defence, graphs(), samples=100, seed=0)) as run:
        rows = certify_into(run, defence, graphs(), engine=lambda graphs: Processes(2))
    assert certified_radii(tmp_path, wanted) == {row["graph"]: (row["predicted"], row["radius"]) for row in rows}
    others = {
        "data_sha256": ("2" * 64, "other data"),
        "model_sha256": ("2" * 64, "another model"),
        "features": ("degree", "other node features"),
        "defence": ({"name": "none"}, "another defence"),
    }
    for key, (other, words) in others.items():
        with pytest.raises(fp.InputError, match=f"has {words} than the attack"):
            certified_radii(tmp_path, dataclasses.replace(wanted, **{key: other}))


def test_a_run_without_a_finished_attack_is_one_sentence(tmp_path: Path) -> None:
    with written_run(tmp_path, SETTINGS):
        pass
    with pytest.raises(fp.InputError, match="holds no finished attack"):
        read_attacks(tmp_path)
