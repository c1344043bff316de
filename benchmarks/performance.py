"""How fast certificates are made: the tables and the figure of docs/benchmarks/performance.md, from one run.

    python benchmarks/performance.py [--only ratios nodes ...] [--docs docs]

One thread unless said otherwise. Times are processor seconds, which neighbours on the machine change little, and the best of
a few rounds; ratios compare ways that were measured in turns on the same graphs, with the range over the graphs. Rewrites the
part of docs/benchmarks/performance.md between its markers, and docs/figures/performance.svg.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_mean_pool

import flipproof as fp
from flipproof.classifiers.classifier import Classifier
from flipproof.classifiers.features import Degree
from flipproof.classifiers.message_passing import MessagePassingClassifier
from flipproof.noise import BLOCK, SampleStream

NOISE = fp.EdgeNoise(keep=0.9)
CLASSES, SAMPLES = 8, 10_000
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
SIZES = (10, 20, 50, 100, 200, 500, 1000)

Curves = dict[str, tuple[list[float], list[float]]]


class Net(torch.nn.Module):
    """A user's network: PyG layers of one kind, a mean readout, a linear head."""

    def __init__(self, layer: str, *, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        sizes = [(1 if number == 0 else width, width) for number in range(layers)]
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


def table(head: list[str], rows: list[list[str]]) -> str:
    """Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def spread(values: np.ndarray) -> str:
    """Median, and the range."""
    digits = 0 if np.median(values) >= 10 else 1
    return f"{np.median(values):.{digits}f} ({values.min():.{digits}f} to {values.max():.{digits}f})"


# ---- sections ----------------------------------------------------------------------------------------------------------


def ratios(curves: Curves) -> str:
    """The paper's test graphs: a loop, batches of messages, dense batches."""
    graphs, rows = test_graphs(8), []
    for name, layer, width, layers in (("GCN", "GCNConv", 64, 2), ("GIN", "GINConv", 32, 3)):
        user, built_in = Net(layer, width=width, layers=layers).eval(), own(name.lower())
        smooth = fp.SmoothedClassifier(user, NOISE, num_classes=CLASSES, features="degree")
        dense = fp.SmoothedClassifier(built_in, NOISE, features="degree").classifier
        for graph in graphs:
            assert smooth.classifier.suited(graph, NOISE).path == "dense twin"
        rates = []
        for graph in graphs:
            times = in_turns(
                {
                    "loop": lambda: one_by_one(user, graph, 64),  # noqa: B023
                    "messages": lambda: block(messages(user), graph, samples=512),  # noqa: B023
                    "twin": lambda: block(smooth.classifier.suited(graph, NOISE), graph),  # noqa: B023
                    "own": lambda: block(dense, graph),  # noqa: B023
                },
                rounds=4,
            )
            rates.append([64 / times["loop"], 512 / times["messages"], BLOCK / times["twin"], BLOCK / times["own"]])
        loop, vectorised, twin, best = np.array(rates).T
        for label, found in (
            (f"{layer}, one PyG graph per copy", loop),
            (f"{layer}, PyG's message passing in batches", vectorised),
            (f"{layer}, the same model through its dense twin", twin),
            (f"flipproof's {name}", best),
        ):
            rows.append([label, f"{np.median(found):,.0f}", spread(found / loop), spread(found / vectorised)])
    return "\n".join(
        [
            "## Ways to ask a model, the paper's test graphs\n",
            "Samples per second, one thread, noise included; ratios as median and range over 8 graphs of 10 to 20 nodes.\n",
            table(["", "samples per second", "times the loop", "times PyG in batches"], rows),
        ]
    )


def layers(curves: Curves) -> str:
    """Users' models of each translated layer, against themselves."""
    rows = []
    graphs = [*test_graphs(4), random_graph(50, 4)]
    for layer in ("GCNConv", "GINConv", "SAGEConv", "GraphConv", "GATConv"):
        model = Net(layer).eval()
        smooth = fp.SmoothedClassifier(model, NOISE, num_classes=CLASSES, features="degree")
        gain, same = [], []
        for graph in graphs:
            twin, plain = smooth.classifier.suited(graph, NOISE), messages(model)
            times = in_turns(
                {
                    "plain": lambda: block(plain, graph, samples=512),  # noqa: B023
                    "twin": lambda: block(twin, graph),  # noqa: B023
                }
            )
            gain.append(2 * times["plain"] / times["twin"])
            batch, _ = SampleStream(graph, NOISE, seed=0).batch(0, BLOCK)
            same.append(np.mean(twin.labels(batch) == plain.labels(batch)))
        rows.append([layer, spread(np.array(gain[:-1])), f"{gain[-1]:.1f}", f"{np.mean(same):.2%}"])
    return "\n".join(
        [
            "## A user's PyG model, translated\n",
            "Two layers of width 64 with a mean readout; speed in multiples of the same model through PyG's message passing in "
            "batches, and votes that agree (the rest are ties up to rounding). Where most of the time is the layers' own "
            "products, as in GINConv's perceptrons, there is less to gain.\n",
            table(["layers", "the paper's graphs", "50 nodes", "same votes"], rows),
        ]
    )


def arithmetic(curves: Curves) -> str:
    """Where the time of a sample goes, and how near the model's arithmetic comes to the machine's."""
    rate, rows = matmul_rate(), []
    model = own("gcn")
    classifier = fp.SmoothedClassifier(model, NOISE, features="degree").classifier
    for nodes in (10, 15, 20, 50, 100):
        graph = random_graph(nodes, 3)
        size = classifier.batch_size(graph, NOISE)
        stream = SampleStream(graph, NOISE, seed=0)
        batch, _ = stream.batch(0, size)
        adjacency = torch.from_numpy(batch.adjacency())
        x, mask = adjacency.sum(dim=2, keepdim=True), torch.ones(size, nodes, dtype=torch.bool)
        with torch.inference_mode():
            times = in_turns(
                {
                    "noise": lambda: stream.batch(0, size),  # noqa: B023
                    "matrices": lambda: batch.adjacency(),  # noqa: B023
                    "model": lambda: model(x, adjacency, mask),  # noqa: B023
                    "all": lambda: classifier.labels(stream.batch(0, size)[0]),  # noqa: B023
                },
                rounds=60,
            )
        work = size * (2 * nodes**2 + 2 * nodes * 64 + 2 * nodes**2 * 64 + 2 * nodes * 64**2 + 2 * 64 * CLASSES)
        parts = [times[name] / times["all"] for name in ("noise", "matrices", "model")]
        rows.append(
            [
                str(nodes),
                f"{times['all'] / size * 1e6:.1f}",
                *(f"{part:.0%}" for part in parts),
                f"{max(0.0, 1 - sum(parts)):.0%}",
                f"{work / times['model'] / rate:.0%}",
                f"{work / times['all'] / rate:.0%}",
            ]
        )
    head = [
        "nodes",
        "µs per sample",
        "noise",
        "matrices",
        "model",
        "rest",
        "model / product rate",
        "all / product rate",
    ]
    return "\n".join(
        [
            "## Where the time goes\n",
            f"flipproof's GCN. The machine multiplies large float32 matrices at {rate / 1e9:.0f} GFLOP/s on one core; the "
            "model's own products come to the share of it in the last columns. *Rest*: node features, arg max, checks, "
            "Python.\n",
            table(head, rows),
        ]
    )


def certificates(curves: Curves) -> str:
    """Certificates per second, with and without the influence statistics."""
    rows = []
    graphs = test_graphs(6)
    for name in ("gcn", "gin"):
        smooth = fp.SmoothedClassifier(own(name), NOISE, features="degree")
        found = []
        for graph in graphs:
            votes = smooth.sample(graph, samples=SAMPLES, seed=0)
            times = in_turns(
                {
                    "sampling": lambda: smooth.sample(graph, samples=SAMPLES, seed=0),  # noqa: B023
                    "votes": lambda: fp.certify_votes(votes, method="votes"),  # noqa: B023
                    "influence": lambda: fp.certify_votes(votes, method="influence"),  # noqa: B023
                },
                rounds=2,
            )
            found.append(list(times.values()))
        sampling, share, influence = np.array(found).T
        rows.append(
            [
                name.upper(),
                f"{sampling.mean() * 1000:.0f}",
                f"{share.mean() * 1000:.1f}",
                f"{influence.mean() * 1000:.0f}",
                f"{1 / (sampling + share).mean():.1f}",
                f"{1 / (sampling + influence).mean():.1f}",
            ]
        )
    head = ["model", "sampling, ms", "votes, ms", "influence, ms", "certificates per second, votes", "with influence"]
    return "\n".join(
        [
            "## Certificates\n",
            f"{SAMPLES:,} samples per graph, mean over {len(graphs)} of the paper's test graphs, one thread.\n",
            table(head, rows),
        ]
    )


def growth_with_nodes(curves: Curves) -> str:
    """Dense batches and messages for n = 10 to 1,000, few edges and many; which of them is chosen."""
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
                chosen = dense.suited(graph, noise).path
                rows.append(
                    [
                        name.upper(),
                        title,
                        f"{nodes:,}",
                        *(f"{rates[way]:,.0f}" for way in ways),
                        chosen,
                        f"{rates[chosen] / max(rates.values()):.0%}",
                    ]
                )
    head = ["model", "noise", "nodes", "dense", "message passing", "chosen", "share of the better one"]
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
    graphs = test_graphs(24)
    runs: dict[str, list[fp.Certificate]] = {}
    walls: dict[str, list[float]] = {"one": [], "two": []}
    for _ in range(3):
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
            f"{len(graphs)} of the paper's test graphs, {SAMPLES:,} samples, wall time, best of 3 rounds in turns; the same "
            f"certificates. Gain {spread(gain)}.\n",
            table(["cores", "seconds", "certificates per second"], rows),
        ]
    )


SECTIONS: dict[str, Callable[[Curves], str]] = {
    "ratios": ratios,
    "layers": layers,
    "arithmetic": arithmetic,
    "certificates": certificates,
    "nodes": growth_with_nodes,
    "samples": growth_with_samples,
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
            colour = "C0" if way == "dense" else "C1"
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
