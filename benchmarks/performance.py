"""How fast certificates are made: the tables and the figure of docs/benchmarks/performance.md, from one run.

    python benchmarks/performance.py [--only ratios nodes ...] [--docs docs]

One thread unless said otherwise. Times are processor seconds, which neighbours on the machine change little, and the best of
a few rounds; ratios compare ways that were measured in turns on the same graphs, with the range over the graphs. Rewrites the
part of docs/benchmarks/performance.md between its markers, and docs/figures/performance.svg.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_mean_pool

import flipproof as fp
from flipproof.classifiers.classifier import Classifier
from flipproof.classifiers.edges import NeighbourLists
from flipproof.classifiers.features import Degree
from flipproof.classifiers.torch_module import MessagePassingClassifier
from flipproof.noise import BLOCK, SampleStream

NOISE = fp.EdgeNoise(keep=0.9)
CLASSES, SAMPLES = 8, 10_000
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
SIZES = (10, 20, 50, 100, 200, 500)
WAYS_TO_ASK = ("dense", "message passing", "compiled")

Curves = dict[str, tuple[list[float], list[float]]]


class Net(torch.nn.Module):
    """A user's network: PyG layers of one kind, a mean readout, a linear head."""

    def __init__(self, layer: str, *, width: int = 64, layers: int = 2, before: int = 1) -> None:
        super().__init__()
        sizes = [(before if number == 0 else width, width) for number in range(layers)]
        self.convs = torch.nn.ModuleList(_layer(layer, *size) for size in sizes)
        self.head = torch.nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch))


def _layer(name: str, before: int, after: int) -> torch.nn.Module:
    if name == "GINConv":
        inner = torch.nn.Sequential(torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.Linear(after, after))
        return GINConv(inner)
    return {"GCNConv": GCNConv, "SAGEConv": SAGEConv, "GraphConv": GraphConv, "GATConv": GATConv}[name](before, after)


# ---- measuring ---------------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def in_turns(works: dict[str, Callable[[], object]], rounds: int = 3) -> dict[str, float]:
    """The best time of each, measured in turns."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            best[name] = min(best[name], seconds(work))
    return best


def matmul_rate() -> float:
    """Floating-point operations per second of a large float32 matrix product on one core."""
    matrix = torch.rand(1024, 1024)
    return 2 * 1024**3 / in_turns({"product": lambda: matrix @ matrix}, rounds=15)["product"]


def test_graphs(count: int) -> list[fp.Graph]:
    """The paper's test graphs."""
    data = fp.datasets.split(fp.datasets.topologies()).test
    return [data[index] for index in range(count)]


def random_graph(nodes: int, degree: float) -> fp.Graph:
    """A graph with so many edges per node on average."""
    pairs = np.random.default_rng(nodes).integers(0, nodes, (int(nodes * degree / 2) + 1, 2))
    return fp.Graph(nodes, pairs[pairs[:, 0] != pairs[:, 1]])


def own(name: str) -> torch.nn.Module:
    """A built-in network."""
    return fp.models.build({"name": name, "in_features": 1, "num_classes": CLASSES}, seed=0).eval()


def messages(module: torch.nn.Module, call: Callable[..., object] | None = None) -> MessagePassingClassifier:
    """A module through PyG's layout, whatever the graph."""
    return MessagePassingClassifier(module, num_classes=CLASSES, features=Degree(), call=call)


def block(classifier: Classifier, graph: fp.Graph, noise: fp.EdgeNoise = NOISE, samples: int = BLOCK) -> None:
    """Noise and answers of the first samples, in batches as in a certificate."""
    stream, size = SampleStream(graph, noise, seed=0), classifier.batch_size(graph, noise)
    for start in range(0, samples, size):
        classifier.labels(stream.batch(start, start + size)[0])


def one_by_one(module: torch.nn.Module, graph: fp.Graph, samples: int) -> None:
    """What people do: a loop that builds one PyG graph per copy."""
    batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, samples)
    with torch.inference_mode():
        for noisy in batch.graphs():
            data = noisy.to_pyg()
            x = torch.from_numpy(noisy.degrees.astype(np.float32)[:, None])
            module(x, data.edge_index, torch.zeros(noisy.num_nodes, dtype=torch.int64)).argmax()


def collated(module: torch.nn.Module, graph: fp.Graph, samples: int) -> None:
    """The copies as PyG graphs, joined by PyG's ``Batch``."""
    batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, samples)
    with torch.inference_mode():
        copies = []
        for noisy in batch.graphs():
            data = noisy.to_pyg()
            data.x = torch.from_numpy(noisy.degrees.astype(np.float32)[:, None])
            copies.append(data)
        joined = Batch.from_data_list(copies)
        module(joined.x, joined.edge_index, joined.batch).argmax(dim=1)


def vectorised(module: torch.nn.Module, graph: fp.Graph, samples: int) -> None:
    """All copies as one list of edges, made by hand without a loop."""
    batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, samples)
    with torch.inference_mode():
        edges, owner = (torch.from_numpy(part) for part in batch.edge_index())
        x = torch.bincount(edges[0], minlength=len(owner)).to(torch.float32).unsqueeze(1)
        module(x, edges, owner).argmax(dim=1)


WAYS: dict[str, tuple[Callable[[torch.nn.Module, fp.Graph, int], None], int]] = {
    "loop": (one_by_one, 64),
    "collated": (collated, SAMPLES),
    "collated in batches": (collated, 256),
    "vectorised": (vectorised, SAMPLES),
    "vectorised in batches": (vectorised, 512),
}
"""What people do, and how many samples of it are timed: all at once, or a batch of a size at which it is about fastest."""


class Apart:
    """A process of its own, in which flipproof has touched neither model nor memory: what a user's own script would take."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()

    def seconds(self, layer: str, graph: fp.Graph, way: str) -> float:
        """Processor seconds per sample."""
        self._pipe.send((layer, graph, way))
        return float(self._pipe.recv())

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join()


def _serve(pipe: Any) -> None:
    torch.set_num_threads(1)
    models: dict[str, torch.nn.Module] = {}
    while (asked := pipe.recv()) is not None:
        layer, graph, way = asked
        if layer not in models:
            models[layer] = user_net(layer)
        work, samples = WAYS[way]
        pipe.send(seconds(lambda: work(models[layer], graph, samples)) / samples)  # noqa: B023


def user_net(layer: str) -> Net:
    """The same weights in every process."""
    torch.manual_seed(0)
    return Net(layer).eval()


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def spread(values: np.ndarray) -> str:
    """Median, and the range."""
    digits = 0 if np.median(values) >= 10 else 1
    return f"{np.median(values):.{digits}f} ({values.min():.{digits}f} to {values.max():.{digits}f})"


# ---- sections ----------------------------------------------------------------------------------------------------------


def ratios(curves: Curves) -> str:
    """The paper's test graphs: a loop, PyG's batches, messages by hand, and flipproof with everything it does besides."""
    graphs, apart, found = test_graphs(8), Apart(), []
    user = user_net("GCNConv")
    smooth = fp.SmoothedClassifier(user, NOISE, num_classes=CLASSES, features="degree")
    built_in = fp.SmoothedClassifier(own("gcn"), NOISE, features="degree")
    for graph in graphs:
        assert smooth.classifier.suited(graph, NOISE).path == "compiled twin"
        best = dict.fromkeys([*WAYS, "kept", "twin", "own"], np.inf)
        for number in range(5):
            for way, (_, samples) in WAYS.items():
                if samples < SAMPLES or number < 2:  # seconds each
                    best[way] = min(best[way], apart.seconds("GCNConv", graph, way))
            best["kept"] = min(best["kept"], seconds(lambda: vectorised(user, graph, 512)) / 512)  # noqa: B023
            for name, classifier in (("twin", smooth), ("own", built_in)):
                work = lambda: classifier.sample(graph, samples=SAMPLES, seed=0)  # noqa: B023, E731
                best[name] = min(best[name], seconds(work) / SAMPLES)
        found.append(list(best.values()))
    apart.close()
    times = np.array(found).T
    labels = (
        "one PyG graph per copy",
        "PyG's Batch of all copies",
        "the same, 256 copies at a time",
        "PyG's message passing, vectorised by hand, all copies",
        "the same, 512 copies at a time",
        "the same, with freed memory kept as flipproof does",
        "flipproof: the same model through its twin",
        "flipproof's GCN",
    )
    rows = [
        [label, f"{np.median(1 / each):,.0f}", *(spread(base / each) for base in times[: len(WAYS)])]
        for label, each in zip(labels, times, strict=True)
    ]
    head = ["copy by copy", "collated", "collated, 256", "vectorised", "vectorised, 512"]
    return "\n".join(
        [
            "## Ways to ask a model, the paper's test graphs\n",
            f"Two layers of GCNConv, width 64, {SAMPLES:,} noisy copies of a graph. Samples per second, one thread, noise "
            "included; the lines of flipproof are `SmoothedClassifier.sample` with all its checks of model and graph. What "
            "people do runs in a process of its own: with all copies at once, and as many at a time as are about fastest. "
            "Ratios as median and range over 8 graphs of 10 to 20 nodes.\n",
            table(["", "samples per second", *(f"times {name}" for name in head)], rows),
        ]
    )


def layers(curves: Curves) -> str:
    """Users' models of each translated layer, against themselves."""
    rows, apart = [], Apart()
    graphs = [*test_graphs(6), random_graph(50, 4)]
    for layer in ("GCNConv", "GINConv", "SAGEConv", "GraphConv", "GATConv"):
        model = user_net(layer)
        smooth = fp.SmoothedClassifier(model, NOISE, num_classes=CLASSES, features="degree")
        whole, gain, kept, same = [], [], [], []
        for graph in graphs:
            twin = smooth.classifier.suited(graph, NOISE)
            assert twin.path == "compiled twin"
            best = dict.fromkeys(("plain", "kept", "twin"), np.inf)
            at_once = apart.seconds(layer, graph, "vectorised") if graph.num_nodes <= 20 else np.inf
            for _ in range(4):
                best["plain"] = min(best["plain"], apart.seconds(layer, graph, "vectorised in batches"))
                best["kept"] = min(best["kept"], seconds(lambda: vectorised(model, graph, 512)) / 512)  # noqa: B023
                best["twin"] = min(best["twin"], seconds(lambda: block(twin, graph)) / BLOCK)  # noqa: B023
            whole.append(at_once / best["twin"])
            gain.append(best["plain"] / best["twin"])
            kept.append(best["kept"] / best["twin"])
            batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, BLOCK)
            same.append(np.mean(twin.labels(batch) == messages(model).labels(batch)))
        rows.append(
            [
                layer,
                *(spread(np.array(found[:-1])) for found in (whole, gain, kept)),
                f"{gain[-1]:.1f}",
                f"{np.mean(same):.2%}",
            ]
        )
    apart.close()
    return "\n".join(
        [
            "## A user's PyG model, translated\n",
            "Two layers of width 64 with a mean readout; speed in multiples of the same model through PyG's message passing, "
            f"vectorised by hand: {SAMPLES:,} copies at once and 512 at a time in a process of its own, and 512 in one that "
            "keeps freed memory as flipproof does. Votes that agree (the rest are ties up to rounding).\n",
            table(
                [
                    "layers",
                    "the paper's graphs, all at once",
                    "512 at a time",
                    "memory kept",
                    "50 nodes",
                    "same votes",
                ],
                rows,
            ),
        ]
    )


def arithmetic(curves: Curves) -> str:
    """Where the time of a sample goes, and how near the model's arithmetic comes to the machine's."""
    rate, rows = matmul_rate(), []
    model = own("gcn")
    classifier = fp.SmoothedClassifier(model, NOISE, features="degree").classifier
    for nodes in (10, 15, 20, 50, 100):
        graph = random_graph(nodes, 3)
        used = classifier.suited(graph, NOISE)
        size, few = used.batch_size(graph, NOISE), classifier.batch_size(graph, NOISE)
        stream = SampleStream(graph, NOISE, seed=0)
        batch, _ = stream.batch(0, size)
        pieces, dense = model.degree_pieces(), stream.batch(0, few)[0]
        adjacency = torch.from_numpy(dense.adjacency())
        x, mask = adjacency.sum(dim=2, keepdim=True), torch.ones(few, nodes, dtype=torch.bool)
        with torch.inference_mode():
            times = in_turns(
                {
                    "noise": lambda: stream.batch(0, size),  # noqa: B023
                    "lists": lambda: NeighbourLists(batch, torch.float32),  # noqa: B023
                    "layers": lambda: model(x, adjacency, mask),  # noqa: B023
                    "model": lambda: model.on_degrees(NeighbourLists(batch, torch.float32), pieces),  # noqa: B023
                    "all": lambda: used.labels(stream.batch(0, size)[0]),  # noqa: B023
                },
                rounds=60,
            )
        work = size * (2 * nodes**2 + 2 * nodes * 64 + 2 * nodes**2 * 64 + 2 * nodes * 64**2 + 2 * 64 * CLASSES)
        rest = times["model"] - times["lists"]
        parts = [part / times["all"] for part in (times["noise"], times["lists"], rest)]
        rows.append(
            [
                str(nodes),
                f"{times['all'] / size * 1e6:.1f}",
                *(f"{part:.0%}" for part in parts),
                f"{max(0.0, 1 - sum(parts)):.0%}",
                f"{work * few / size / times['layers'] / rate:.0%}",
                f"{work / times['model'] / rate:.0%}",
                f"{work / times['all'] / rate:.0%}",
            ]
        )
    head = [
        "nodes",
        "µs per sample",
        "noise",
        "lists",
        "model",
        "rest",
        "layer by layer / rate",
        "model / rate",
        "all / rate",
    ]
    return "\n".join(
        [
            "## Where the time goes\n",
            f"flipproof's GCN. The machine multiplies large float32 matrices at {rate / 1e9:.0f} GFLOP/s on one core; the "
            "products of the model's formula come to the share of it in the last columns: computed layer by layer in torch, by "
            "compiled loops over lists of neighbours with the first layer looked up (which leave most products out, so that the "
            "share may exceed 100%), and with everything around it. *Rest*: arg max, checks, Python.\n",
            table(head, rows),
        ]
    )


def beside(curves: Curves) -> str:
    """What a graph costs beside its samples, and what other batch sizes would give."""
    graph, rows, sizes = random_graph(15, 3), [], (64, 128, 256, 512, 1024)
    for layer in ("GCNConv", "GINConv", "SAGEConv", "GraphConv", "GATConv"):
        smooth = fp.SmoothedClassifier(user_net(layer), NOISE, num_classes=CLASSES, features="degree")
        twin, stream = smooth.classifier.suited(graph, NOISE), SampleStream(graph, NOISE, seed=0)
        chosen = twin.batch_size(graph, NOISE)
        batches = {size: stream.batch(0, size)[0] for size in sizes}
        labels, again = twin.labels(batches[chosen]), np.arange(twin.recheck_count(graph, 0))
        works: dict[str, Callable[[], object]] = {
            "trial": lambda: smooth.check([graph]),  # noqa: B023
            "again": lambda: twin.recheck(batches[chosen], labels, again),  # noqa: B023
        }
        times = in_turns(works, rounds=10)
        by_size = in_turns({str(size): partial(twin.labels, batch) for size, batch in batches.items()}, rounds=40)
        shown = [f"{by_size[str(size)] / size * 1e6:.1f}{' *' if size == chosen else ''}" for size in sizes]
        rows.append([layer, *(f"{times[name] * 1000:.1f}" for name in works), *shown])
    return "\n".join(
        [
            "## Beside the samples\n",
            "A user's PyG model on a graph of 15 nodes. The trial of the model, once per graph; copies that the model itself is "
            "asked about after its twin, once per graph; and the twin's time per sample by batch size, in µs (* is what is "
            "used).\n",
            table(["layers", "trial, ms", "asked again, ms", *(f"{size:,} at once" for size in sizes)], rows),
        ]
    )


def certificates(curves: Curves) -> str:
    """What reading a certificate costs beside the sampling, at the paper's three noises."""
    rows = []
    data = fp.datasets.split(fp.datasets.topologies())
    graphs = [data.test[index] for index in range(12)]
    for keep in (0.9, 0.8, 0.7):
        noise, model = fp.EdgeNoise(keep=keep), fp.models.GCN(in_features=1, num_classes=CLASSES, seed=0)
        fp.train(model, data.train, noise=noise, epochs=15, seed=0, features="degree")
        smooth = fp.SmoothedClassifier(model, noise, features="degree")
        found = []
        for graph in graphs:
            votes = smooth.sample(graph, samples=SAMPLES, seed=0)
            times = in_turns(
                {
                    "sampling": lambda: smooth.sample(graph, samples=SAMPLES, seed=0),  # noqa: B023
                    "votes": lambda: fp.certify_votes(votes, method="votes"),  # noqa: B023
                    "influence": lambda: fp.certify_votes(votes, method="influence"),  # noqa: B023
                },
                rounds=3,
            )
            found.append(list(times.values()))
        sampling, share, influence = np.array(found).sum(axis=0)
        rows.append(
            [
                f"{keep}",
                *(f"{part / len(graphs) * 1000:.1f}" for part in (sampling, share, influence)),
                f"{share / sampling:.3f}",
                f"{influence / sampling:.3f}",
                f"{len(graphs) / (sampling + influence):.1f}",
            ]
        )
    head = ["keep", "sampling, ms", "votes, ms", "influence, ms", "votes / sampling", "influence / sampling"]
    return "\n".join(
        [
            "## Certificates\n",
            f"flipproof's GCN, trained for 15 epochs, {SAMPLES:,} samples per graph, sum over {len(graphs)} of the paper's test "
            "graphs, one thread.\n",
            table([*head, "certificates per second"], rows),
        ]
    )


def training(curves: Curves) -> str:
    """An epoch on graphs of very different sizes, against PyG's own loop without noise."""
    rng, graphs = np.random.default_rng(0), []
    sizes = np.clip(np.exp(rng.normal(np.log(27), 0.42, 1000)), 4, 120).astype(int)
    sizes[:6] = [417, 300, 250, 210, 180, 150]
    for nodes in rng.permutation(sizes).tolist():
        pairs = {(int(rng.integers(max(0, node - 3), node)), node) for node in range(1, nodes)}
        atoms = np.eye(14, dtype=np.float32)[rng.integers(0, 14, nodes)]
        graphs.append(fp.Graph(nodes, sorted(pairs), atoms, label=int(rng.integers(2))))
    loaded = []
    for graph in graphs:
        data = graph.to_pyg()
        data.x, data.y = torch.from_numpy(graph.node_features.copy()), torch.tensor([graph.label])
        loaded.append(data)

    def by_pyg() -> None:
        model = Net("GCNConv", before=14)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for batch in DataLoader(loaded, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y).backward()
            optimizer.step()

    def by_us(noise: fp.EdgeNoise | None) -> None:
        model = fp.models.GCN(in_features=14, num_classes=2, seed=0)
        fp.train(model, graphs, noise=noise, epochs=1, batch_size=32, seed=0)

    noise = fp.EdgeNoise(add=0.002, remove=0.2)
    times = in_turns({"pyg": by_pyg, "clean": lambda: by_us(None), "noisy": lambda: by_us(noise)}, rounds=4)
    rows = [
        ["PyG's loop, without noise", f"{times['pyg']:.2f}", "1.0"],
        ["flipproof's GCN, without noise", f"{times['clean']:.2f}", f"{times['pyg'] / times['clean']:.1f}"],
        ["flipproof's GCN under noise", f"{times['noisy']:.2f}", f"{times['pyg'] / times['noisy']:.1f}"],
    ]
    return "\n".join(
        [
            "## Training\n",
            "One epoch of 1,000 graphs of 4 to 417 nodes (30 on average, sized like Mutagenicity), batches of 32, GCN of two "
            "layers, width 64, one thread.\n",
            table(["", "seconds", "times PyG's speed"], rows),
        ]
    )


def growth_with_nodes(curves: Curves) -> str:
    """Dense batches, messages and compiled loops for n = 10 to 500, few edges and many; which of them is chosen."""
    rows = []
    for name in ("gcn", "gin"):
        model = own(name)
        dense = fp.SmoothedClassifier(model, NOISE, features="degree").classifier
        sparse = messages(model, model.forward_sparse)
        for title, noise_of, degree in (
            ("few edges", lambda n: fp.EdgeNoise(add=min(0.1, 1 / n), remove=0.3), 4),
            ("many edges", lambda n: NOISE, 4),
        ):
            for nodes in SIZES:
                graph, noise = random_graph(nodes, degree), noise_of(nodes)
                ways = {"dense": dense, "message passing": sparse}
                used = dense.suited(graph, noise)
                if used.path == "compiled":
                    ways["compiled"] = used
                rates = {}
                for way, classifier in ways.items():
                    size = classifier.batch_size(graph, noise)
                    batch, _ = SampleStream(graph, noise, seed=0).batch(0, size)
                    work = lambda: classifier.labels(batch)  # noqa: B023, E731
                    once = seconds(work)
                    rates[way] = size / in_turns({way: work}, rounds=int(np.clip(0.3 / max(once, 1e-6), 1, 20)))[way]
                    line = curves.setdefault(f"{name.upper()}, {title}, {way}", ([], []))
                    line[0].append(nodes)
                    line[1].append(rates[way])
                rows.append(
                    [
                        name.upper(),
                        title,
                        f"{nodes:,}",
                        *(f"{rates[way]:,.0f}" if way in rates else "" for way in WAYS_TO_ASK),
                        used.path,
                        f"{rates[used.path] / max(rates.values()):.0%}",
                    ]
                )
    head = ["model", "noise", "nodes", *WAYS_TO_ASK, "chosen", "share of the best one"]
    return "\n".join(
        [
            "## Growth with the number of nodes\n",
            "Model answers per second, noise not counted. *Few edges*: noisy copies have about 2 edges per node; *many*: keep "
            "0.9, which gives every node a tenth of all others as neighbours.\n",
            table(head, rows),
        ]
    )


def growth_with_samples(curves: Curves) -> str:
    """Time of a certificate with M, and of a data set with its number of graphs."""
    smooth = fp.SmoothedClassifier(own("gcn"), NOISE, features="degree")
    graphs = test_graphs(32)
    line = curves.setdefault("seconds, one graph, by samples", ([], []))
    for samples in (1_000, 2_000, 5_000, 10_000, 20_000, 50_000):
        line[0].append(samples)
        line[1].append(in_turns({"": lambda: smooth.certify(graphs[0], samples=samples, seed=0)}, rounds=2)[""])  # noqa: B023
    rows = [[f"{m:,}", "1", f"{t:.3f}", f"{t / m * 1e6:.1f}"] for m, t in zip(*line, strict=True)]
    line = curves.setdefault("seconds, 1,000 samples, by graphs", ([], []))
    for count in (1, 2, 4, 8, 16, 32):
        line[0].append(count)
        line[1].append(seconds(lambda: smooth.certify_all(graphs[:count], samples=1_000, seed=0)))  # noqa: B023
    rows += [["1,000", str(g), f"{t:.3f}", f"{t / g / 1000 * 1e6:.1f}"] for g, t in zip(*line, strict=True)]
    return "\n".join(
        [
            "## Growth with samples and graphs\n",
            "flipproof's GCN, influence certificate included, one thread.\n",
            table(["samples", "graphs", "seconds", "µs per sample"], rows),
        ]
    )


def two_cores(curves: Curves) -> str:
    """Wall time on one core and on two; same bytes."""
    from flipproof.engines import Processes

    smooth = fp.SmoothedClassifier(own("gcn"), NOISE, features="degree")
    data = fp.datasets.split(fp.datasets.topologies(600)).test
    graphs = [data[index] for index in range(200)]
    runs: dict[str, list[fp.Certificate]] = {}
    walls: dict[str, list[float]] = {"one": [], "two": []}
    for _ in range(2):
        for name, engine in (("one", None), ("two", Processes(2))):
            started = time.perf_counter()
            runs[name] = smooth.certify_all(graphs, samples=SAMPLES, seed=0, method="votes", engine=engine)
            walls[name].append(time.perf_counter() - started)
    assert runs["one"] == runs["two"]
    gain = np.array(walls["one"]) / np.array(walls["two"])
    rows = [[name, f"{min(found):.2f}", f"{len(graphs) / min(found):.1f}"] for name, found in walls.items()]
    return "\n".join(
        [
            "## Two cores\n",
            f"{len(graphs)} of the paper's test graphs, {SAMPLES:,} samples, wall time, best of 2 rounds in turns; the same "
            f"certificates. Gain {spread(gain)}.\n",
            table(["cores", "seconds", "certificates per second"], rows),
        ]
    )


SECTIONS: dict[str, Callable[[Curves], str]] = {
    "ratios": ratios,
    "layers": layers,
    "arithmetic": arithmetic,
    "beside": beside,
    "certificates": certificates,
    "nodes": growth_with_nodes,
    "samples": growth_with_samples,
    "training": training,
    "cores": two_cores,
}


# ---- the page ----------------------------------------------------------------------------------------------------------


def figure(curves: Curves, path: Path) -> None:
    """How cost grows with nodes, samples and graphs."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "flipproof"
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for name, (x, y) in curves.items():
        if name.startswith("GCN"):
            _, title, way = name.split(", ")
            colour = f"C{WAYS_TO_ASK.index(way)}"
            axes[0].plot(
                x, y, "o" + ("-" if title == "few edges" else ":"), color=colour, label=f"{way}, {title}", ms=3
            )
    axes[0].set(xscale="log", yscale="log", xlabel="nodes", ylabel="model answers per second", title="GCN, by nodes")
    axes[0].legend(fontsize=7)
    for axis, kind in zip(axes[1:], ("samples", "graphs"), strict=True):
        x, y = next(line for name, line in curves.items() if name.endswith(f"by {kind}"))
        axis.plot(x, y, "o-", ms=3)
        axis.plot(x, np.array(x) * y[-1] / x[-1], ":", color="grey", label="proportional")
        axis.set(xscale="log", yscale="log", xlabel=kind, ylabel="seconds", title=f"GCN, by {kind}")
        axis.legend(fontsize=7)
    drawing.savefig(path, metadata={"Date": None})
    pyplot.close(drawing)


def parts(chosen: list[str], curves: Curves) -> Iterator[str]:
    """The sections' texts."""
    for name in chosen:
        started = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True)
        yield SECTIONS[name](curves)
        print(f"{time.perf_counter() - started:.0f} s", flush=True)


def available() -> list[str]:
    """All sections; without engines there is one core only."""
    engines = importlib.util.find_spec("flipproof.engines")
    return [name for name in SECTIONS if name != "cores" or engines is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="print these sections and change no file")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parent.parent / "docs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    curves: Curves = {}
    text = "\n\n".join(parts(options.only or available(), curves))
    if options.only:
        print(f"\n{text}")
        return
    page = options.docs / "benchmarks" / "performance.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    stamp = f"One run of `make bench`: {platform.machine()}, torch {torch.__version__}, numpy {np.__version__}."
    page.write_text(f"{before}{BEGIN}\n{stamp}\n\n{text}\n{END}{after}")
    figure(curves, options.docs / "figures" / "performance.svg")
    print(f"wrote {page} and its figure")


if __name__ == "__main__":
    main()
