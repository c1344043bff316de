"""Studies with edge labels: read by the networks that can, unseen by all others, and refused where there are none."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

import flipproof as fp
from flipproof.datasets.fold_files import write_folds
from flipproof.datasets.sources import DataSource, fingerprint
from flipproof.models import load_metadata
from flipproof.runs.attacking import read_attacks
from flipproof.studies import halving, tuning
from flipproof.studies.benchmark import row_jobs
from flipproof.studies.benchmark.protocol_file import read_protocols
from flipproof.studies.benchmark.row_jobs import JobWork, fold, jobs_of
from flipproof.studies.candidate import Candidate, given_candidates
from flipproof.studies.halving import Search, Trial, Tried, trained
from flipproof.studies.search_space import space
from support.command_line import Shell, write_bonds

BONDS = DataSource("BONDS", ".", test=0.25, validation=0.25, edge_labels=True)
QUICK = shlex.split("--data BONDS --root . --test 0.25 --validation 0.25 --workers 1")
LOCAL = Candidate(space("local"), {"budget": 1})
COUNTS = Candidate(space("local"), {"budget": 1, "counts_only": True})
NOISY = given_candidates({"keep": [0.9]})[0]


@pytest.fixture(autouse=True)
def bonds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bonds(tmp_path, count=32)
    monkeypatch.chdir(tmp_path)
    for cache in (halving._parts, row_jobs._graphs, row_jobs._folds):  # the folder is another one in every test
        cache.cache_clear()


@pytest.fixture
def few_defences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that need no minute."""
    names = ("local", "edge-blind", "none")
    monkeypatch.setattr(halving, "spaces", lambda: [space(name) for name in names])


def test_only_a_network_that_reads_them_is_shown_edge_labels() -> None:
    search = Search(BONDS, 1)
    plain = replace(BONDS, edge_labels=False)
    for candidate, labels in ((LOCAL, 2), (COUNTS, 0), (NOISY, 0), (search.lines()[0], 0)):
        parts = search.parts(candidate)
        assert parts.dataset.num_edge_labels == labels
        assert (fingerprint(parts.dataset) == fingerprint(plain.load())) == (not labels)
        assert parts.test_indices.tolist() == search.parts().test_indices.tolist()
        assert {graph.edge_labels is None for graph in search.validation(candidate)} == {not labels}
        assert {graph.edge_labels is None for graph in search.learning(candidate)} == {not labels}
        # the command that goes on reads them only then, too: train refuses them for other networks
        command, _ = tuning._commands(Tried(Trial(candidate, 2), {}), search, Path("out"))
        assert ("--edge-labels" in shlex.split(command)) == bool(labels)


def test_a_network_knows_the_labels_that_its_training_graphs_lack() -> None:
    search = Search(BONDS, 1)
    graphs = search.learning(LOCAL)
    few = graphs.subset([index for index, graph in enumerate(graphs) if graph.label == 0])
    assert few.num_edge_labels == 1
    assert trained(search, LOCAL, few, 1).model.edge_labels == 2


def test_protect_hands_over_what_its_commands_make(shell: Shell, few_defences: None) -> None:
    words = ("protect", *QUICK, "--edge-labels", "--radius", 1, "--epochs", 24, "--time", "5m", "--out", "p")
    done = shell.done(*words)
    readers = "edge labels are read by local 1, local 2, local 3; every other candidate ignores them"
    assert done.err.count(readers) == 1
    assert "with edge labels), the best of" in done.out
    found = json.loads(Path("p/protect.json").read_text())
    assert found["defence"] == "local"
    # all rings are alike but for their bonds
    assert found["edge_blind"] <= 0.5 < 0.9 < found["withstood"]
    train, certify = found["next"]
    assert "--edge-labels" in shlex.split(train)
    for line in (train, certify):
        shell.done(*shlex.split(line.replace("MODEL", "m").replace("RUN", "r"))[1:], "--quiet")
    assert load_metadata("m").weights_hash == load_metadata("p/model").weights_hash
    assert load_metadata("m").config["edge_labels"] == 2
    columns = ("graph", "radius", "predicted")
    once, again = ([[row[key] for key in columns] for row in shell.rows(run)] for run in ("p/run", "r"))
    assert once == again
    shell.done("verify", "p/run")
    assert all("edge_labels" in stored["defended"] for stored in read_attacks(Path("p/attack"))[1].values())
    # the networks to compare with were trained as without labels
    assert "edge_labels" not in load_metadata("p/undefended").metadata
    other = shell(*(word for word in words if word != "--edge-labels"))
    assert other.code == 2
    assert "p holds a run with data = 'BONDS with edge labels'; asked for data = 'BONDS'" in other.err


def test_tune_says_who_reads_them_and_goes_on_with_them(shell: Shell) -> None:
    words = ("--candidate", "local budget=1", "--keep", 0.9, "--samples", 50, "--epochs", 24)
    done = shell.done("tune", *QUICK, "--edge-labels", "--radius", 0, *words, "--out", "t")
    assert done.err.count("edge labels are read by local 1; every other candidate ignores them") == 1
    choice = json.loads(Path("t/choice.json").read_text())
    assert choice["best"]["defence"] == "local 1"
    for line in choice["next"]:
        shell.done(*shlex.split(line)[1:], "--quiet")
    assert fp.LocalClassifier.load("t/model").model.edge_labels == 2


CONFIG = """
root = "."
folds = [0]
attacked = 2
attack_budget = 2
training = { epochs = 40 }
asked = { samples = "40" }
[[row]]
defence = "local"
settings = [{ budget = 1, counts_only = true }, { budget = 1 }]
[[row]]
defence = "voting"
settings = [{ groups = 3 }]
[[data]]
name = "BONDS"
"""


def test_benchmark_reads_labels_for_the_rows_that_can(shell: Shell) -> None:
    write_folds(Path("splits/BONDS.json"), fp.datasets.tu("BONDS", root="."))  # published ones know no labels
    digests = {}
    for name, labels in (("plain", ""), ("labels", "edge_labels = true\n")):
        Path(f"{name}.toml").write_text(f'{CONFIG}{labels}splits = "splits"\n')
        digests[name] = {job.row: job.digest for job in jobs_of(read_protocols(Path(f"{name}.toml")))}
    assert {row for row in digests["plain"] if digests["plain"][row] != digests["labels"][row]} == {"local"}
    done = shell.done(
        "benchmark", "labels.toml", "--out", "b", "--workers", 1, "--method", "local", "--method", "edge-blind"
    )
    assert done.err.count("BONDS: edge labels are read by local; every other method ignores them") == 1
    assert "Edge labels are read by local; every other method ignores them." in Path("b/page.md").read_text()
    (protocol,) = read_protocols(Path("labels.toml"))
    assert fold(protocol, 0).dataset.num_edge_labels == 0
    job = next(job for job in jobs_of([protocol]) if job.row == "local")
    found = JobWork({"BONDS": protocol})(job)
    # counts alone tell nothing here, and the other candidate is certified and attacked with labels
    assert found["chosen"] == {"budget": 1}
    right = [
        label == answer for label, answer in zip(found["labels"], found["rows"]["local"]["predicted"], strict=True)
    ]
    assert sum(right) >= 0.9 * len(right)
    assert len(found["attacked"]["flips"]) == 2
    other = shell("benchmark", "plain.toml", "--out", "b", "--workers", 1)
    assert other.code == 2
    assert "b holds a run with edge_labels = True; asked for edge_labels = None" in other.err


@pytest.mark.parametrize("command", ["tune", "protect"])
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("--data topologies:40", "edge labels are read from TU data sets only; got topologies:40 (leave them out)"),
        ("--data BONDS --root .", "BONDS has no edge labels (leave them out)"),
    ],
)
def test_labels_that_are_not_there_are_refused(shell: Shell, command: str, data: str, sentence: str) -> None:
    Path("BONDS_edge_labels.txt").unlink()
    done = shell(command, *data.split(), "--edge-labels", "--radius", 1, "--out", "x")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert sentence in done.err
    assert not Path("x").exists()


def test_labels_that_a_benchmark_or_no_candidate_can_read_are_refused(shell: Shell) -> None:
    Path("b.toml").write_text(CONFIG.replace('"BONDS"', '"topologies:40"') + "edge_labels = true\n")
    for words, sentence in (
        (("benchmark", "b.toml"), "edge_labels of topologies:40: edge labels are read from TU data sets only"),
        (
            ("tune", *QUICK, "--edge-labels", "--radius", 1, "--groups", 5),
            "and no candidate reads them (leave them out",
        ),
    ):
        done = shell(*words, "--out", "x")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert sentence in done.err
        assert not Path("x").exists()
