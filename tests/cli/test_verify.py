"""``flipproof verify``: an auditor's command names every graph whose evidence or certificate was altered."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import flipproof as fp
from flipproof.runs.run_folder import CertifySettings
from support.command_line import Shell
from support.runs import alter_row, alter_settings, evidence_of, replace_evidence, spoil

SMOOTHING = ["certify", "--model", "own:make", "--keep", 0.8, "--samples", 200, "--data", "graphs", "--out", "run"]
VOTING = ["certify", "--model", "own:make", "--groups", 4, "--data", "graphs", "--out", "run"]


def refused(shell: Shell, index: int) -> str:
    """The one complaint about a graph; JSON says the same."""
    done = shell("verify", "run")
    assert done.code == 1
    assert "Traceback" not in done.err
    complaints = [line for line in done.err.splitlines() if line.startswith(f"flipproof: graph {index}: ")]
    found = json.loads(shell("verify", "run", "--json").out)
    assert (found["ok"], [problem["graph"] for problem in found["problems"]][:1]) == (False, [index])
    return complaints[0]


@pytest.mark.parametrize("certify", [SMOOTHING, VOTING], ids=["smoothing", "voting"])
def test_a_run_as_it_was_written_passes(shell: Shell, certify: list[object]) -> None:
    shell.done(*certify)
    assert shell.done("verify", "run").out == (
        "verified: 4 certificates follow from their evidence, and what the model was shown can be made again\n"
    )
    found = json.loads(shell.done("verify", "run", "--json").out)
    assert found == {"run": "run", "graphs": 4, "ok": True, "problems": []}


def test_a_run_that_is_not_finished_is_no_alteration(shell: Shell) -> None:
    shell.done(*SMOOTHING)
    Path("run/certificates.parquet").unlink()
    done = shell("verify", "run")
    assert done.code == 2
    assert "run has no certificates.parquet: the run is not finished" in done.err


IN_THE_RUN = {
    "radius": "radius is 9 in the table and",
    "grid": "grid in the table is not the one from the evidence",
    "label": "label is",
    "predicted": "predicted is",
    "row gone": "is missing from certificates.parquet",
    "evidence gone": "cannot be derived again: .* holds nothing of graph",
    "evidence cut": "was altered: its hash is not the stored one",
}


@pytest.mark.parametrize("certify", [SMOOTHING, VOTING], ids=["smoothing", "voting"])
@pytest.mark.parametrize("alteration", IN_THE_RUN)
def test_an_altered_run_is_told_of_whatever_the_defence(shell: Shell, alteration: str, certify: list[object]) -> None:
    shell.done(*certify)
    index = CertifySettings.read(Path("run")).graphs[1]
    row = next(row for row in shell.rows("run") if row["graph"] == index)
    cells = {"radius": ("radius", 9), "grid": ("grid", [[True] * 9]), "row gone": ("graph", 99)}
    cells |= {name: (name, 1 - int(row[name] or 0)) for name in ("label", "predicted")}
    if alteration in cells:
        alter_row("run", index, *cells[alteration])
    elif alteration == "evidence gone":
        replace_evidence("run", index, None)
    else:
        spoil("run", index)
    assert re.search(IN_THE_RUN[alteration], refused(shell, index))


@pytest.mark.parametrize("method", ["influence", "votes"])
@pytest.mark.parametrize("alteration", ["vote", "swapped votes", "slot order", "checksum", "seed"])
def test_altered_samples_are_noticed_even_with_a_hash_that_fits(shell: Shell, alteration: str, method: str) -> None:
    shell.done(*SMOOTHING, "--method", method)
    index = CertifySettings.read(Path("run")).graphs[1]
    votes = evidence_of("run", index)
    labels, shown = votes.labels.copy(), "what the model was shown, made again, is not what it answered"
    if alteration == "vote":
        labels[17] = 1 - labels[17]
        changed, words = {"labels": labels}, "its evidence is not what the certificate was read from"
    elif alteration == "swapped votes":  # the counts stay
        first, second = (labels == 0).argmax(), (labels == 1).argmax()
        assert labels[first] != labels[second]
        labels[[first, second]] = labels[[second, first]]
        changed, words = {"labels": labels}, "its evidence is not what the certificate was read from"
    elif alteration == "slot order":  # the same graph with two nodes exchanged
        exchanged = np.array([1, 0, *range(2, votes.graph.num_nodes)])
        changed, words = {"graph": votes.graph.replaced(edges=exchanged[votes.graph.edges])}, shown
    elif alteration == "checksum":
        changed, words = {"checksums": ("0" * 32, *votes.checksums[1:])}, shown
    else:
        changed, words = {"seed": 1}, shown
    replace_evidence("run", index, dataclasses.replace(votes, **changed))
    assert words in refused(shell, index)


@pytest.mark.parametrize("alteration", ["vote", "swapped votes", "nodes", "key", "groups"])
def test_altered_group_votes_are_noticed_even_with_a_hash_that_fits(shell: Shell, alteration: str) -> None:
    shell.write(rule="3 * graph.num_edges > graph.num_nodes", nodes=8)
    shell.done(*VOTING)
    graphs = CertifySettings.read(Path("run")).graphs
    index = next(index for index in graphs if len(set(evidence_of("run", index).labels.tolist())) == 2)
    votes = evidence_of("run", index)
    labels, graph, groups = votes.labels.copy(), votes.graph, votes.groups
    if alteration == "vote":
        labels[0] = 1 - labels[0]
    elif alteration == "swapped votes":  # the counts stay
        labels = np.roll(labels, 1)
    elif alteration == "nodes":
        graph = graph.replaced(edges=np.roll(np.arange(graph.num_nodes), 1)[graph.edges])
    elif alteration == "key":
        groups = fp.EdgeGroups(4, 1)
    else:
        labels, groups = np.append(labels, labels[:1]), fp.EdgeGroups(5)
    replace_evidence("run", index, fp.GroupVotes(labels, graph, groups, 2))
    words = (
        "another defence" if alteration in ("key", "groups") else "not what the certificate|do not answer this request"
    )
    assert re.search(words, refused(shell, index))


def test_settings_that_were_altered_are_noticed(shell: Shell) -> None:
    shell.done(*SMOOTHING, "--alpha", 0.04, "--simultaneous")
    alter_settings("run", "question", "simultaneous", value=False)
    done = shell("verify", "run")
    assert done.code == 1
    assert "alpha is 0.01 in the table and 0.04 from the evidence" in done.err
    alter_settings("run", "question", "simultaneous", value=True)
    assert shell("verify", "run").code == 0
    alter_settings("run", "question", "alpha", value=0.5)
    assert shell("verify", "run").code == 1
    alter_settings("run", "question", "alpha", value=0.04)
    alter_settings("run", "defence", "add", value=0.3)
    assert "its evidence belongs to another defence than run.json's" in shell("verify", "run").err


def test_a_row_twice_and_an_altered_run_json_are_told_of(shell: Shell) -> None:
    shell.done(*SMOOTHING)
    path = Path("run/certificates.parquet")
    table = pyarrow.parquet.read_table(path)
    rows = table.to_pylist()
    larger = {**rows[1], "radius": 9}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([larger, *rows], schema=table.schema), path)
    done = shell("verify", "run")
    assert done.code == 1
    assert "the table has rows twice" in done.err
    pyarrow.parquet.write_table(table, path)
    assert shell("verify", "run").code == 0
    settings = Path("run/run.json")
    whole = json.loads(settings.read_text())
    other = {"model_sha256": "0" * 64, "data_sha256": "0" * 64, "features": "degree", "class_names": ["a", "b"]}
    for key, value in {**other, "part": "all", "model": "another", "paths": {}}.items():
        settings.write_text(json.dumps({**whole, "settings": {**whole["settings"], key: value}}))
        done = shell("verify", "run")
        assert done.code == 1, key
        assert "run.json was altered" in done.err
    settings.write_text(json.dumps({**whole, "versions": {"flipproof": "9"}}))
    assert "run.json was altered" in shell("verify", "run").err
