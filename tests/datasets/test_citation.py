"""Citation networks in the format of Planetoid, as PyG reads it."""

import pickle

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from flipproof import Graph, InputError
from flipproof.datasets import citation

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 510)  # PyG takes 500 nodes beside the first two as given
WORDS = RNG.integers(0, 2, (510, 5))
RING = {node: [(node - 1) % 510, (node + 1) % 510] for node in range(510)}
TESTED = [509, 504, 507, 506, 505, 508]  # Planetoid has its test nodes in an order of their own


def planetoid(folder, tested=TESTED):
    """The files of a ring: two nodes to train on, and 504 in all that are not tested."""
    (folder / "raw").mkdir(parents=True)
    one_hot, sparse = np.eye(3)[LABELS], csr_matrix(WORDS.astype(np.float32))
    content = {"x": sparse[:2], "y": one_hot[:2], "allx": sparse[:504], "ally": one_hot[:504]}
    content |= {"tx": sparse[tested], "ty": one_hot[tested], "graph": RING | {0: [509, 1, 1, 0]}}  # twice, and a loop
    for part, value in content.items():
        (folder / "raw" / f"ind.{folder.name.lower()}.{part}").write_bytes(pickle.dumps(value))
    index = folder / "raw" / f"ind.{folder.name.lower()}.test.index"
    index.write_text("".join(f"{node}\n" for node in tested))
    return folder


def test_nodes_have_their_own_words_class_and_neighbours(tmp_path):
    folder = planetoid(tmp_path / "Cora")
    before = sorted(folder.rglob("*"))
    task = citation(folder)
    assert (task.name, task.num_classes, task.labels.tolist()) == ("Cora", 3, LABELS.tolist())
    assert task.graph == Graph(510, [(u, (u + 1) % 510) for u in range(510)], WORDS)
    assert sorted(folder.rglob("*")) == before, "nothing is written"


def test_nodes_of_citeseer_that_nothing_is_known_of_have_no_words(tmp_path):
    task = citation(planetoid(tmp_path / "CiteSeer", [node for node in TESTED if node != 506]))
    known = np.arange(510) != 506
    assert task.labels[known].tolist() == LABELS[known].tolist()
    assert task.graph.node_features.tolist() == (WORDS * known[:, None]).tolist()


def test_a_broken_file_is_one_sentence(tmp_path):
    (planetoid(tmp_path / "Cora") / "raw" / "ind.cora.x").write_bytes(b"")
    with pytest.raises(InputError, match=r"Cora cannot be read as a citation network: .*Planetoid\)$") as caught:
        citation(tmp_path / "Cora")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["tx", "ally", "test.index"])
def test_nothing_is_downloaded(part, tmp_path):
    folder = planetoid(tmp_path / "Cora")
    (folder / "raw" / f"ind.cora.{part}").unlink()
    with pytest.raises(InputError, match=rf"ind\.cora\.{part} is missing"):
        citation(folder)
