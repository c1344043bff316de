"""Real molecules with bond types: no attack within a certified radius succeeds, whatever labels its edges have."""

from __future__ import annotations

import pytest

import flipproof as fp
from flipproof.models import Local
from support.shared_data import data_root

MOLECULES = [pytest.param(16, id="16 graphs"), pytest.param(188, id="all graphs", marks=pytest.mark.guarantee)]


@pytest.mark.parametrize("count", MOLECULES)
def test_no_attack_with_labels_succeeds_within_a_radius_on_mutag(count: int) -> None:
    data = fp.datasets.tu("MUTAG", root=data_root(), edge_labels=True)
    model = Local(data.num_node_features, data.num_classes, edge_labels=data.num_edge_labels, seed=0)
    fp.train(model, data, budget=1, epochs=15, seed=0)
    model.hear([4.0])  # held-out graphs would have votes silent, and no attack could succeed
    local = fp.LocalClassifier(model)
    certified = sorted(zip(local.certify_all(data), data, strict=True), key=lambda pair: pair[0].radius)
    succeeded = added = 0
    for certificate, graph in certified[:count]:  # the weakest first: there attacks succeed
        if certificate.label is None:
            continue
        found = fp.attacks.strongest(
            local, graph, budget=min(8, certificate.radius + 3), label=certificate.label, attacks=["greedy", "beam"]
        )
        assert not found.success or found.size > certificate.radius
        # for one flip the certificate is exact, and so is the search
        assert certificate.radius or (found.success, found.size) == (True, 1)
        if found.success:
            assert local.predict(found.graph) != certificate.label
            succeeded += 1
            added += not {tuple(pair) for pair in found.graph.edges.tolist()} <= set(map(tuple, graph.edges.tolist()))
    assert succeeded >= 8
    assert added >= 4, "edges are added, with labels"
