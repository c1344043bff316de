"""Sampling speed from 15 to 10,000 nodes, where its time goes, its memory, and two cores."""

import cProfile
import pstats
import subprocess
import sys
import time
from functools import partial

import numpy as np
import torch
from ways_to_ask import CLASSES, Curves, Net, in_turns, random_graph, table, vectorised

import flipproof as fp
from flipproof.classifiers.classifier import Classifier
from flipproof.noise import SampleStream

NODES = (15, 30, 100, 300, 1_000, 3_000, 10_000)
LAYERS = ("GCNConv", "GINConv", "SAGEConv", "GraphConv", "GATConv")
OWN = 16  # own features of a node

PARTS = {
    "random numbers": ("_words", "philox"),
    "flips": ("noisy_states", "added_cells", "flipped_cells", "counts", "_sparse_samples", "tobytes"),
    "hash": ("update",),
    "lists of neighbours": ("joined_neighbours", "noisy_neighbours"),
    "degrees": ("sums", "distinct", "pieces_of", "diff", "take"),
    "products": ("mix",),
    "linear layers": ("linear",),
}
"""Functions by what they do; everything else is Python, torch's small calls, and the arg max."""


def noise_of(graph: fp.Graph) -> fp.EdgeNoise:
    """Removes .3 of the edges, and adds as many."""
    return fp.EdgeNoise(add=0.3 * graph.num_edges / graph.num_slots, remove=0.3)


def smoothed(layer: str, graph: fp.Graph) -> fp.SmoothedClassifier:
    """Two layers of width 64; the degree as feature, or the graph's own ones."""
    torch.manual_seed(0)
    own = graph.node_features is not None
    model = Net(layer, before=OWN if own else 1).eval()
    return fp.SmoothedClassifier(model, noise_of(graph), num_classes=CLASSES, features="own" if own else "degree")


def votes(used: Classifier, graph: fp.Graph, samples: int) -> None:
    """Noise, checksum and answers, as in a certificate."""
    stream, size = SampleStream(graph, noise_of(graph), seed=0), used.batch_size(graph, noise_of(graph))
    checksum = stream.new_checksum()
    for start in range(0, samples, size):
        batch, flips = stream.batch(start, start + size)
        checksum.update(flips)
        used.labels(batch)


def rates(layer: str, graph: fp.Graph) -> tuple[float, float, float]:
    """Samples per second: messages at their best batch size, flipproof's votes, and those with all checks of model and graph."""
    nodes, smooth = graph.num_nodes, smoothed(layer, graph)
    used, model = smooth.classifier.suited(graph, noise_of(graph)), smooth.classifier.module
    assert used.path == "compiled twin"
    size = used.batch_size(graph, noise_of(graph))
    samples = max(size, 2**16 // nodes // size * size)
    works = {"votes": (samples, partial(votes, used, graph, samples))}
    whole = 1024 * max(1, min(10, 2**20 // nodes // 1024))
    works["checked"] = whole, lambda: smooth.sample(graph, samples=whole, seed=0)
    for batch in (1, 4, 16, 64, 256, 1024):
        if batch * nodes <= 2**18:
            works[f"messages {batch}"] = batch, partial(vectorised, model, graph, batch, noise_of(graph))
    times = in_turns({name: work for name, (_, work) in works.items()}, rounds=3 if nodes > 1_000 else 6)
    rate = {name: works[name][0] / seconds for name, seconds in times.items()}
    return max(value for name, value in rate.items() if "messages" in name), rate["votes"], rate["checked"]


def by_size(curves: Curves) -> str:
    """Speed against messages vectorised by hand, from 15 to 10,000 nodes."""
    texts = [
        "## Growth with the number of nodes: users' PyG models\n",
        "Random graphs of mean degree 4, noise that removes .3 of the edges and adds as many; two layers of width 64, one "
        "thread, one run. PyG's messages are vectorised by hand over as many copies as are fastest (1 to 1,024), on the same "
        "noisy copies. *Votes*: noise, checksum and answers. *Checked*: `SmoothedClassifier.sample` of 1,024 to 10,240 copies "
        "with all checks of model and graph.\n",
    ]
    for title, layers, width in (("The degree as feature", LAYERS, 0), (f"{OWN} features of its own", LAYERS, OWN)):
        sizes, rows = NODES if not width else NODES[1::2], []
        for layer in layers:
            for nodes in sizes:
                graph = random_graph(nodes, 4)
                if width:
                    values = np.random.default_rng(0).normal(size=(nodes, width)).astype(np.float32)
                    graph = graph.replaced(node_features=values)
                messages, own, checked = rates(layer, graph)
                shown = [f"{value:,.0f}" for value in (messages, own, checked)]
                ratios = [f"{value / messages:.1f}" for value in (own, checked)]
                rows.append([layer, f"{nodes:,}", *shown, *ratios, f"{own * nodes / 1e6:.1f}"])
        head = ["layers", "nodes", "messages", "votes", "checked", "votes / messages", "checked / messages"]
        texts.append(f"**{title}**, samples per second:\n")
        texts.append(table([*head, "votes x nodes, millions"], rows) + "\n")
    texts.append(f"Peak memory of a process that samples the graph of 10,000 nodes: {peak_memory():,} MiB.")
    return "\n".join(texts)


def profiles(curves: Curves) -> str:
    """Where the time of a sample goes."""
    rows = []
    for layer in ("GCNConv", "GINConv", "SAGEConv"):
        for nodes in (30, 300, 3_000):
            graph = random_graph(nodes, 4)
            used = smoothed(layer, graph).classifier.suited(graph, noise_of(graph))
            samples = used.batch_size(graph, noise_of(graph)) * 2
            work = partial(votes, used, graph, samples)
            best = in_turns({"": work}, rounds=10)[""] / samples
            profile = cProfile.Profile()
            profile.runcall(lambda: [work() for _ in range(10)])  # noqa: B023
            found = pstats.Stats(profile).stats  # type: ignore[attr-defined]
            names = {key: key[2].rpartition(" ")[2].rstrip(">").rpartition(".")[2].strip("'") for key in found}
            names |= {key: key[2].split("'")[1] for key in found if key[2].startswith("<method")}
            spent = {part: sum(found[key][2] for key in found if names[key] in those) for part, those in PARTS.items()}
            whole = sum(values[2] for values in found.values())
            shares = [f"{value / whole:.0%}" for value in (*spent.values(), whole - sum(spent.values()))]
            rows.append([layer, f"{nodes:,}", f"{best * 1e6:,.1f}", *shares])
    return "\n".join(
        [
            "## Where the time goes, by size\n",
            "The same models and graphs, the degree as feature: µs per sample, and the share of its parts (by a profiler, which "
            "makes Python's part look larger than it is).\n",
            table(["layers", "nodes", "µs", *PARTS, "rest"], rows),
        ]
    )


def two_cores_by_size(curves: Curves) -> str:
    """Wall time on one core and on two, from 15 to 10,000 nodes."""
    from flipproof.engines import Processes

    rows = []
    for nodes in NODES:
        count, samples = max(2, 600 // nodes), 1024 * max(2, min(10, 2_000 // nodes))
        graphs = [random_graph(nodes, 4 + number / count) for number in range(count)]
        smooth, walls = smoothed("GCNConv", graphs[0]), dict[str, float]()
        for _ in range(2):
            for name, engine in (("one", None), ("two", Processes(2))):
                started = time.perf_counter()
                smooth.certify_all(graphs, samples=samples, seed=0, method="votes", engine=engine)
                walls[name] = min(walls.get(name, np.inf), time.perf_counter() - started)
        rows.append([f"{nodes:,}", str(count), f"{samples:,}", *(f"{wall:.2f}" for wall in walls.values())])
        rows[-1].append(f"{walls['one'] / walls['two']:.2f}")
    return "\n".join(
        [
            "## Two cores, by size\n",
            "GCNConv, the degree as feature, `certify_all` with all checks; wall time in seconds, best of 2 rounds in turns.\n",
            table(["nodes", "graphs", "samples", "one core", "two", "gain"], rows),
        ]
    )


_MEMORY = """
import re, sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
from by_size import random_graph, smoothed
graph = random_graph(10_000, 4)
smoothed("GCNConv", graph).sample(graph, samples=1024, seed=0)
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def peak_memory() -> int:
    """MiB."""
    code = _MEMORY.format(folder=sys.path[0])
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) // 1024
