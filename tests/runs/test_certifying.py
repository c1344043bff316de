"""Certifying and attacking into a run folder: whatever stops them, the same results in the end."""

import csv
import dataclasses
import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.defences.baselines import Undefended
from flipproof.defences.defence import DefendedClassifier, described
from flipproof.engines import Processes, ThisProcess
from flipproof.fields import from_plain
from flipproof.noise import BLOCK
from flipproof.runs.attacking import AttackWork, attack_into, certified_radii, read_attacks
from flipproof.runs.certifying import certify_into
from flipproof.runs.run_folder import AttackSettings, written_run
from flipproof.runs.saved_run import problems_of_run
from support.attacked import trained
from support.graphs import parity
from support.runs import replace_evidence, settings_of, spoil, stored

GRAPHS = {3: fp.Graph(4, [(0, 1), (1, 2)], label=0), 7: fp.Graph(5, [(0, 1)], label=1)}
SAMPLES = 2 * BLOCK + 100


SMOOTH = fp.SmoothedClassifier(parity, fp.EdgeNoise(keep=0.8), num_classes=2)
VOTING = fp.VotingClassifier(parity, 4, num_classes=2)
ASKED = {"smoothing": {"samples": SAMPLES, "seed": 3, "method": "votes"}, "voting": {}}


class Watched(ThisProcess):
    """Notes every graph that is asked about; interrupted after so many."""

    def __init__(self, most=None):
        self.most, self.done = most, list[int]()

    def run(self, work, tasks):
        for task, result in super().run(work, tasks):
            if isinstance(task[1], fp.Graph):
                if len(self.done) == self.most:
                    raise KeyboardInterrupt
                self.done.append(task[0])
            yield task, result


def certified(folder, defended, engine=None, **changes: Any):
    """A whole run; the bytes of its table."""
    settings = settings_of(defended, GRAPHS, **{**ASKED[defended.defence_name], **changes})
    with written_run(folder, settings) as run:
        certify_into(run, defended, GRAPHS, engine=lambda graphs: engine or ThisProcess())
    return (folder / "certificates.parquet").read_bytes()


@pytest.mark.parametrize("most", [0, 1])
def test_interrupted_anywhere_it_goes_on_with_the_next_graph_and_ends_with_the_same_bytes(tmp_path, most):
    whole = certified(tmp_path / "whole", SMOOTH)
    with pytest.raises(KeyboardInterrupt):
        certified(tmp_path / "run", SMOOTH, Watched(most))
    assert [row[0] for row in stored(tmp_path / "run")] == [7][:most]
    again = Watched()
    assert certified(tmp_path / "run", SMOOTH, again) == whole
    assert again.done == [7, 3][most:]
    nothing = Watched()
    assert certified(tmp_path / "run", SMOOTH, nothing) == whole
    assert nothing.done == []


def test_a_run_over_noisy_features_goes_on_and_knows_the_features_of_its_graphs(tmp_path):
    def with_labels(*labels: int):
        eye = np.eye(3, dtype=np.float64)
        return {key: one.replaced(node_features=eye[list(labels[: one.num_nodes])]) for key, one in GRAPHS.items()}

    def run(folder, graphs, engine):
        smooth = fp.SmoothedClassifier(parity, SMOOTH.noise, num_classes=2, feature_noise=fp.LabelNoise(keep=0.8))
        with written_run(folder, settings_of(smooth, graphs, **ASKED["smoothing"])) as held:
            certify_into(held, smooth, graphs, engine=lambda count: engine)
        assert problems_of_run(folder) == []
        return (folder / "certificates.parquet").read_bytes()

    graphs = with_labels(0, 1, 2, 0, 1)
    whole = run(tmp_path / "whole", graphs, Processes(2))
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", graphs, Watched(1))
    again = Watched()
    assert run(tmp_path / "run", graphs, again) == whole
    assert again.done == [3]
    others = with_labels(0, 1, 2, 0, 0)  # the graph of four nodes is the same
    run(tmp_path / "run", others, again)
    assert again.done == [3, 7]


@pytest.mark.parametrize("defended", [SMOOTH, VOTING], ids=lambda defended: defended.defence_name)
def test_a_graph_that_is_alone_is_split_among_the_workers(tmp_path, defended):
    pids = tmp_path / "pids"

    def noted(graphs):
        with pids.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return parity(graphs)

    graph = fp.Graph(100, [])
    options: dict[str, Any] = {"samples": 5 * BLOCK, "seed": 3, "method": "votes"}
    if defended is VOTING:
        options = {"depth": 1}
    split = DefendedClassifier(noted, defended.defence, num_classes=2)
    request = from_plain(defended.defence.request, options)
    alone = defended.certify(graph, **options)
    assert split._certificates([graph], request, engine=Processes(2)) == [alone]
    assert len(set(pids.read_text().split())) == 3


def votes(noise=SMOOTH.noise, classes=2, graph=3, **changes: int):
    smooth = fp.SmoothedClassifier(parity, noise, num_classes=classes)
    return smooth.sample(GRAPHS[graph], **{"samples": SAMPLES, "seed": 3, **changes})


OTHER_EVIDENCE: dict[str, Callable[[], Any]] = {
    "other graph": lambda: votes(graph=7),
    "other noise": lambda: votes(fp.EdgeNoise(keep=0.9)),
    "other defence": lambda: VOTING.vote(GRAPHS[3]),
    "other classes": lambda: votes(classes=3),
    "other seed": lambda: votes(seed=4),
    "fewer samples": lambda: votes(samples=100),
}


@pytest.mark.parametrize("content", ["cut", *OTHER_EVIDENCE])
def test_evidence_that_cannot_be_used_is_asked_again(tmp_path, content, capsys):
    whole = certified(tmp_path, SMOOTH)
    if content == "cut":
        spoil(tmp_path, 3)
    else:
        replace_evidence(tmp_path, 3, OTHER_EVIDENCE[content]())
    again = Watched()
    settings = settings_of(SMOOTH, GRAPHS, **ASKED["smoothing"])
    with written_run(tmp_path, settings) as run:
        certify_into(run, SMOOTH, GRAPHS, engine=lambda graphs: again, quiet=False)
    assert (tmp_path / "certificates.parquet").read_bytes() == whole
    assert again.done == [3]
    assert "asking again about graph 3" in capsys.readouterr().err


SETTINGS = AttackSettings(
    *("made by hand", "0" * 64, [10, 11, 12, 13], "1" * 64, None, None, "degree"), 2, ["greedy"], {}, 24, 500, 0.001, 0
)


def smoothed():
    return fp.SmoothedClassifier(trained("gin", 0.9)[0], fp.EdgeNoise(keep=0.9), features="degree")


def graphs(count=4):
    return {10 + index: trained("gin", 0.9)[1][index] for index in range(count)}


def run_attack(folder, count=4, search=None, **changes: Any):
    attacked = {
        "undefended": Undefended(trained("gcn", None)[0], features="degree"),
        "base": Undefended(trained("gin", 0.9)[0], features="degree"),
        "defended": smoothed(),
    }
    search = search or {"samples": 24, "confirm_samples": 500}
    with written_run(folder, dataclasses.replace(SETTINGS, graphs=list(graphs(count)))) as run:
        return attack_into(run, AttackWork(attacked, graphs(count), 2, ["greedy"], search), **changes)


def test_attacks_are_written_and_not_made_again(tmp_path):
    radii = {10: (graphs()[10].label, 0), 11: (None, -1)}
    summary = run_attack(tmp_path, radii=radii)
    under_attack = summary["accuracy_under_attack"]
    assert set(under_attack) == {"undefended", "base", "defended"}
    assert all(list(values) == sorted(values, reverse=True) and len(values) == 3 for values in under_attack.values())
    assert summary["certified_accuracy"] == [0.5, 0.0, 0.0]
    assert summary["attacks_within_a_certified_radius"] == 0
    rows = list(csv.DictReader((tmp_path / "attacks.csv").read_text().splitlines()))
    assert len(rows) == 12
    _, attacks = read_attacks(tmp_path)
    for row in rows:
        result = attacks[int(row["graph"])][row["target"]]
        assert (str(result["success"]), str(result["size"])) == (row["success"], row["size"])
    before = stored(tmp_path)
    replace_evidence(tmp_path, 10, None)
    again = run_attack(tmp_path, radii=radii, engine=Processes(2))
    assert again == summary  # the missing one again, the others from their rows
    assert stored(tmp_path) == before
    assert json.loads((tmp_path / "summary.json").read_text()) == {
        key: value for key, value in summary.items() if key not in ("run", "task")
    }


def test_an_attack_within_a_certified_radius_is_told(tmp_path):
    planted = {index: (graph.label, 99) for index, graph in graphs(5).items()}
    summary = run_attack(tmp_path, 5, {"samples": 96, "confirm_samples": 2000}, radii=planted)
    assert summary["attacks_within_a_certified_radius"] == len(summary["gaps"]) > 0


def test_certificates_of_the_same_model_data_and_defence_are_a_measure_and_no_others(tmp_path):
    defence, wanted = smoothed(), dataclasses.replace(SETTINGS, features="own", defence=described(smoothed().defence))
    with written_run(tmp_path / "attacks", SETTINGS) as run:
        unlabelled = AttackWork({"base": defence}, {3: fp.Graph(2, [])}, 1, ["greedy"], {})
        with pytest.raises(fp.InputError, match="graph 3 has none"):
            attack_into(run, unlabelled)
    with pytest.raises(fp.InputError, match="holds no finished attack"):
        read_attacks(tmp_path / "attacks")
    with written_run(tmp_path / "run", settings_of(defence, graphs(), samples=100, seed=0)) as run:
        rows = certify_into(run, defence, graphs(), engine=lambda graphs: Processes(2))
    assert certified_radii(tmp_path / "run", wanted) == {r["graph"]: (r["predicted"], r["radius"]) for r in rows}
    others = {
        "data_sha256": ("2" * 64, "other data"),
        "model_sha256": ("2" * 64, "another model"),
        "features": ("degree", "other node features"),
        "defence": ({"name": "none"}, "another defence"),
    }
    for key, (other, words) in others.items():
        with pytest.raises(fp.InputError, match=f"has {words} than the attack"):
            certified_radii(tmp_path / "run", dataclasses.replace(wanted, **{key: other}))
