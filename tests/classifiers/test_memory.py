"""Memory bounded by a setting: batches are cut to fit, what does not fit is refused, and the largest graphs are measured."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.cli.options import checked_memory
from flipproof.noise import BLOCK, SampleStream
from support.graphs import parity

NOISE = fp.EdgeNoise(keep=0.9)


def random_graph(nodes, edges):
    """A graph with this number of nodes and about this number of edges."""
    pairs = np.random.default_rng(0).integers(0, nodes, (edges, 2))
    return fp.Graph(nodes, pairs[pairs[:, 0] != pairs[:, 1]])


def classifiers(memory):
    for model in (fp.models.GCN(1, 2, seed=0).eval(), parity):
        options: dict[str, Any] = {} if model is parity else {"features": "degree"}
        yield fp.SmoothedClassifier(model, NOISE, num_classes=2, memory=memory, **options).classifier


def test_less_memory_means_smaller_batches_and_then_a_refusal():
    graph = random_graph(200, 400)
    for plenty, little, none in zip(classifiers(2**30), classifiers(2**23), classifiers(2**20), strict=True):
        size, cut = plenty.batch_size(graph, NOISE), little.batch_size(graph, NOISE)
        assert 1 <= cut < size
        assert BLOCK % cut == 0
        with pytest.raises(fp.InputError, match=r"a graph of 200 nodes .* memory allows 1.0 MiB \(raise"):
            none.batch_size(graph, NOISE)


@pytest.mark.parametrize("nodes", [12, 120])
def test_pieces_put_together_are_the_batch(nodes, monkeypatch):
    stream = SampleStream(random_graph(nodes, 2 * nodes), fp.EdgeNoise(add=0.001, remove=0.4), seed=0)
    assert stream.sparse == (nodes == 120)
    monkeypatch.setattr("flipproof.noise.stream._PIECE", 7 * stream.bytes_per_sample)
    pieces = list(stream.pieces(3, 53))
    assert [batch.size for batch, _ in pieces] == [7] * 7 + [1]
    assert b"".join(content for _, content in pieces) == stream.batch(3, 53)[1]


@pytest.mark.parametrize("memory", [0, -1, 2**19, 1e9, "1GiB", True])
def test_memory_must_be_bytes(memory):
    with pytest.raises(fp.InputError, match=r"memory must be an integer of at least 1048576; got .* \(a number"):
        fp.SmoothedClassifier(parity, NOISE, num_classes=2, memory=memory)


def test_amounts_on_the_command_line():
    amounts = {"2GiB": 2**31, "1.5 mib": 3 * 2**19, "2MB": 2_000_000, "1048576": 2**20}
    assert {text: checked_memory(text) for text in amounts} == amounts
    for text in ("", "much", "-1GiB", "1KiB", "2 GiB of RAM", "9999TiB"):
        with pytest.raises(fp.InputError, match=r"--memory must be .*the default is 1GiB"):
            checked_memory(text)


LARGE = """
import re, numpy as np, torch
import flipproof as fp

torch.set_num_threads(1)
pairs = np.random.default_rng(0).integers(0, 10_000, (50_060, 2))
pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)[:50_000]
graph = fp.Graph(10_000, pairs)
noise = fp.EdgeNoise(add=0.0001, remove=0.4)
smooth = fp.SmoothedClassifier(fp.models.GCN(1, 8, seed=0).eval(), noise, features="degree")
certificate = smooth.certify(graph, samples=256, seed=0)
assert certificate.order == 0 and certificate.samples == 256
# the peak of this program alone; getrusage's is also that of the process that started it
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""


@pytest.mark.guarantee
def test_ten_thousand_nodes_within_two_gibibytes():
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True, timeout=600)
    assert int(done.stdout) < 768  # MiB
