"""``flipproof verify``: an auditor's command names every graph whose evidence or certificate was altered."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.runs.run_folder import CertifySettings
from support.runs import alter_row, evidence_of, replace_evidence, spoil

SMOOTHING = ["certify", "--model", "own:make", "--keep", 0.8, "--samples", 200, "--data", "graphs", "--out", "run"]
VOTING = ["certify", "--model", "own:make", "--groups", 4, "--data", "graphs", "--out", "run"]


def refused(shell, index):
    """The one complaint about a graph; JSON says the same."""
    done = shell("verify", "run")
    assert done.code == 1
    assert "Traceback" not in done.err
    complaints = [line for line in done.err.splitlines() if line.startswith(f"flipproof: graph {index}: ")]
    summary = json.loads(shell("verify", "run", "--json").out)
    assert (summary["ok"], [problem["graph"] for problem in summary["problems"]][:1]) == (False, [index])
    return complaints[0]


@pytest.mark.parametrize("certify", [SMOOTHING, VOTING], ids=["smoothing", "voting"])
def test_a_run_passes_as_it_was_written_and_every_alteration_is_named(shell, certify):
    shell.done(*certify)
    assert shell.done("verify", "run").out == (
        "verified: 4 certificates follow from their evidence, and what the model was shown can be made again\n"
    )
    summary = json.loads(shell.done("verify", "run", "--json").out)
    assert summary == {"run": "run", "graphs": 4, "ok": True, "problems": []}
    index, table = CertifySettings.read(Path("run")).graphs[1], Path("run/certificates.parquet")
    whole, row = table.read_bytes(), next(row for row in shell.rows("run") if row["graph"] == index)
    for column, value, words in (
        ("radius", 9, "radius is 9 in the table and"),
        ("predicted", 1 - (row["predicted"] or 0), "predicted is"),
        ("graph", 99, "is missing from certificates.parquet"),
    ):
        alter_row("run", index, column, value)
        assert words in refused(shell, index)
        table.write_bytes(whole)
    spoil("run", index)
    assert "was altered: its hash is not the stored one" in refused(shell, index)
    replace_evidence("run", index, None)
    assert re.search("cannot be derived again: .* holds nothing of graph", refused(shell, index))
    table.unlink()
    unfinished = shell("verify", "run")
    assert (unfinished.code, "run has no certificates.parquet: the run is not finished" in unfinished.err) == (2, True)


@pytest.mark.parametrize("method", ["influence", "votes"])
def test_altered_samples_are_noticed_even_with_a_hash_that_fits(shell, method):
    shell.done(*SMOOTHING, "--method", method)
    index = CertifySettings.read(Path("run")).graphs[1]
    votes = evidence_of("run", index)
    vote, swapped = votes.labels.copy(), votes.labels.copy()
    vote[17] = 1 - vote[17]
    first, second = (swapped == 0).argmax(), (swapped == 1).argmax()
    swapped[[first, second]] = swapped[[second, first]]  # the counts stay
    exchanged = np.array([1, 0, *range(2, votes.graph.num_nodes)])
    changes: dict[str, list[dict[str, Any]]] = {
        "its evidence is not what the certificate was read from": [{"labels": vote}, {"labels": swapped}],
        "what the model was shown, made again, is not what it answered": [
            {"graph": votes.graph.replaced(edges=exchanged[votes.graph.edges])},  # the same graph in another order
            {"checksums": ("0" * 32, *votes.checksums[1:])},
            {"seed": 1},
        ],
    }
    for words, cases in changes.items():
        for changed in cases:
            replace_evidence("run", index, dataclasses.replace(votes, **changed))
            assert words in refused(shell, index), changed


def test_altered_group_votes_are_noticed_even_with_a_hash_that_fits(shell):
    shell.write(rule="3 * graph.num_edges > graph.num_nodes", nodes=8)
    shell.done(*VOTING)
    graphs = CertifySettings.read(Path("run")).graphs
    index = next(index for index in graphs if len(set(evidence_of("run", index).labels.tolist())) == 2)
    votes = evidence_of("run", index)
    labels, graph, groups = votes.labels, votes.graph, votes.groups
    moved = graph.replaced(edges=np.roll(np.arange(graph.num_nodes), 1)[graph.edges])
    altered, other = "not what the certificate|do not answer this request", "another defence"
    for changed, words in (
        ((np.append(1 - labels[:1], labels[1:]), graph, groups), altered),
        ((np.roll(labels, 1), graph, groups), altered),  # the counts stay
        ((labels, moved, groups), altered),
        ((labels, graph, fp.EdgeGroups(4, 1)), other),
        ((np.append(labels, labels[:1]), graph, fp.EdgeGroups(5)), other),
    ):
        replace_evidence("run", index, fp.GroupVotes(*changed, 2))
        assert re.search(words, refused(shell, index)), words
