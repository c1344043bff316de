"""Local certificates against all attacks on many small graphs, and against searches on real ones."""

import os

import numpy as np
import pytest

import flipproof as fp
from flipproof.models import Local
from support.local_tables import looked_at, random_case

pytestmark = pytest.mark.guarantee

CASES = {
    "unlabelled": ({"nodes": 5}, 0.75),
    "labelled": ({"nodes": 5, "kinds": 2}, 0.75),
    "every node its own kind": ({"nodes": 5, "kinds": 60}, 0.7),
    "several classes": ({"nodes": 5, "kinds": 2, "classes": 4}, 0.75),
    "frozen pairs": ({"nodes": 5, "kinds": 2, "frozen": 0.3}, 0.75),
    "ties": ({"nodes": 5, "kinds": 2, "classes": 3, "integers": True}, 0.7),
    "edges counted": ({"nodes": 5, "counted": True}, 0.6),
    "edges counted, several classes": ({"nodes": 5, "classes": 4, "counted": True}, 0.6),
    "edges counted, frozen pairs": ({"nodes": 5, "kinds": 2, "frozen": 0.3, "counted": True}, 0.6),
}


@pytest.mark.parametrize(("case", "share"), CASES.values(), ids=CASES.keys())
def test_brute_force(case, share):
    """300 random classifiers each: no radius and no cell above the truth, one flip exact, and most of the true radius found."""
    rng = np.random.default_rng(7)
    found = truth = 0
    for _ in range(300):
        evidence, attacked = random_case(rng, **case)
        certificate, graph = evidence.certify(), evidence.graph
        if certificate.label is None:
            continue
        true = attacked.radius(certificate.label, graph.num_slots)
        assert certificate.radius <= true
        assert (certificate.radius >= 1) == (true >= 1)
        for adds, removes in np.argwhere(certificate.grid):
            assert attacked.withstood(certificate.label, adds, removes)
        found, truth = found + certificate.radius, truth + true
        for depth in (1, 2, 3):
            assert looked_at(evidence, depth).certify().radius <= certificate.radius
    assert found >= share * truth


@pytest.mark.parametrize("name", ["topologies", "MUTAG", "IMDB-BINARY"])
def test_attacks_up_to_12_flips_on_real_graphs(name):
    """Greedy and random attacks never succeed inside a radius, and they do succeed outside."""
    if name == "topologies":
        graphs = fp.datasets.topologies(60, seed=5)
    else:
        root = os.environ.get("FLIPPROOF_DATA")
        if root is None:
            pytest.skip("no TU data sets (set FLIPPROOF_DATA to the folder that holds them)")
        graphs = fp.datasets.tu(name, root=root)
    parts = fp.datasets.split(graphs, test=0.2, seed=0)
    first = parts.train[0].node_features
    model = Local(0 if first is None else first.shape[1], graphs.num_classes, seed=0)
    # not through its certificate: radii are small, and attacks have something to do
    fp.train(model, parts.train, features=None if model.in_features else "constant", epochs=40)
    local = fp.LocalClassifier(model)
    succeeded = 0
    for graph in list(parts.test)[:12]:
        certificate = local.certify(graph)
        if certificate.abstains or graph.num_nodes > 40:
            continue
        for search in (fp.attacks.greedy, fp.attacks.random):
            result = search(local, graph, budget=12, label=certificate.label, seed=0)
            succeeded += result.success
            assert not result.success or result.size > certificate.radius
    assert succeeded
