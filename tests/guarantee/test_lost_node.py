"""A cluster of two nodes, one of which is lost in the middle: the same votes as one process."""

from __future__ import annotations

import pytest

import flipproof as fp
from flipproof.defences.defence import ask_all
from flipproof.defences.smoothing import Sampling
from flipproof.engines import RayCluster

GRAPHS = [fp.Graph(5 + k, [(0, 1), (1, 2), (2, 3), (3, 4)][: 2 + k % 3]) for k in range(4)]


@pytest.mark.filterwarnings("ignore")  # Ray's own
@pytest.mark.guarantee
def test_a_node_is_lost_in_the_middle() -> None:
    """Ray's own way to have two nodes on one machine; one is removed while it works."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    def parity(graphs: list[fp.Graph]) -> list[int]:
        return [graph.num_edges % 2 for graph in graphs]

    smooth = fp.SmoothedClassifier(parity, fp.EdgeNoise(keep=0.8), num_classes=2)
    samples = 20_000
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = nodes.add_node(num_cpus=1)
    try:
        with RayCluster(nodes.address) as cluster:
            assert str(cluster) == "a Ray cluster of 2 nodes and 2 cores"
            question = Sampling(samples, seed=1)
            found = {}
            for index, votes, _ in ask_all(smooth, question, dict(enumerate(GRAPHS)), engine=cluster, read=False):
                if not found:
                    nodes.remove_node(second, allow_graceful=False)
                found[index] = votes
    finally:
        nodes.shutdown()
    assert found == {index: smooth.sample(graph, samples=samples, seed=1) for index, graph in enumerate(GRAPHS)}
