"""How fast certificates are made: the tables and the figure of docs/benchmarks/performance.md, from one run.

    python benchmarks/performance.py [--only sizes paths ...] [--docs docs]

One thread unless said otherwise. Times are processor seconds, which other work on the machine changes little, and the best of a
few rounds; ratios compare ways that were measured in turns on the same graphs. Rewrites what stands between the markers of
docs/benchmarks/performance.md, and docs/figures/performance.svg, both whole or not at all.
"""

import argparse
import cProfile
import io
import os
import platform
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
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
from flipproof.classifiers.features import Degree
from flipproof.classifiers.torch_module import DenseClassifier, MessagePassingClassifier
from flipproof.files import write_bytes, write_text
from flipproof.noise import NoisyBatch, SampleStream
from flipproof.report.templates import markdown_table
from flipproof.studies.provenance import marked, stamp

CLASSES, WIDTH, OWN = 8, 64, 16  # classes, width of the layers, own features of a node
NODES = (15, 30, 100, 300, 1_000, 3_000, 10_000)
LAYERS: dict[str, Callable[[int, int], torch.nn.Module]] = {
    "GCNConv": GCNConv,
    "GINConv": lambda before, after: GINConv(
        torch.nn.Sequential(torch.nn.Linear(before, after), torch.nn.ReLU(), torch.nn.Linear(after, after))
    ),
    "SAGEConv": SAGEConv,
    "GraphConv": GraphConv,
    "GATConv": GATConv,
}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PARTS = {
    "random numbers": ("philox_words",),
    "flips": (
        "flips_of_draws",
        "noisy_states",
        "added_cells",
        "flipped_cells",
        "counts",
        "_sparse_samples",
        "packbits",
    ),
    "checksum": ("update",),
    "lists of neighbours": ("noisy_neighbours",),
    "degrees": ("sums", "weighted_sums", "distinct", "pieces_of", "diff"),
    "products": ("mix",),
    "linear layers": ("linear",),
}
"""Functions by what they do; everything else is Python, torch's small calls, and the arg max."""


class Net(torch.nn.Module):
    """A user's network: two PyG layers of one kind, a mean readout, a linear head."""

    def __init__(self, layer: str, before: int = 1) -> None:
        super().__init__()
        self.convs = torch.nn.ModuleList(LAYERS[layer](*size) for size in ((before, WIDTH), (WIDTH, WIDTH)))
        self.head = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        return self.head(global_mean_pool(x, batch))


# ---- measuring ---------------------------------------------------------------------------------------------------------


def in_turns(works: dict[Any, Callable[[], object]], rounds: int) -> dict[Any, float]:
    """The best processor time of each, measured in turns."""
    best = dict.fromkeys(works, np.inf)
    for _ in range(rounds):
        for name, work in works.items():
            started = time.process_time()
            work()
            best[name] = min(best[name], time.process_time() - started)
    return best


def graph_of(nodes: int, features: int = 0, degree: float = 4) -> fp.Graph:
    """A random graph with so many edges per node on average."""
    rng = np.random.default_rng(nodes)
    pairs = rng.integers(0, nodes, (int(nodes * degree / 2) + 1, 2))
    rows = rng.normal(size=(nodes, features)).astype(np.float32) if features else None
    return fp.Graph(nodes, pairs[pairs[:, 0] != pairs[:, 1]], rows)


def noise_of(graph: fp.Graph) -> fp.EdgeNoise:
    """Removes .3 of the edges, and adds as many."""
    return fp.EdgeNoise(add=0.3 * graph.num_edges / graph.num_slots, remove=0.3)


def smoothed(layer: str, graph: fp.Graph) -> fp.SmoothedClassifier:
    """A user's network with the degree as feature, or the graph's own ones."""
    torch.manual_seed(0)
    own = graph.node_features is not None
    model = Net(layer, OWN if own else 1).eval()
    return fp.SmoothedClassifier(model, noise_of(graph), num_classes=CLASSES, features="own" if own else "degree")


def votes(used: Classifier, graph: fp.Graph, samples: int) -> None:
    """Noise, checksum and answers, as in a certificate."""
    noise = noise_of(graph)
    stream, size = SampleStream(graph, noise, seed=0), used.batch_size(graph, noise)
    checksum = stream.new_checksum()
    for start in range(0, samples, size):
        batch, flips = stream.batch(start, start + size)
        checksum.update(flips)
        used.labels(batch)


def vectorised(module: torch.nn.Module, graph: fp.Graph, samples: int) -> None:
    """What a user writes at best: all copies as one list of edges, made without a loop."""
    batch, _ = SampleStream(graph, noise_of(graph), seed=0).batch(0, samples)
    with torch.inference_mode():
        edges, owner = (torch.from_numpy(part) for part in batch.edge_index())
        if batch.node_features is None:
            x = torch.bincount(edges[0], minlength=len(owner)).to(torch.float32).unsqueeze(1)
        else:
            x = torch.tensor(batch.node_features).repeat(samples, 1)
        module(x, edges, owner).argmax(dim=1)


def collated(module: torch.nn.Module, graph: fp.Graph, samples: int, at_once: int) -> None:
    """What people do: one PyG graph per copy, as many as these joined by PyG's ``Batch``."""
    copies = []
    for noisy in SampleStream(graph, noise_of(graph), seed=0).batch(0, samples)[0].graphs():
        data = noisy.to_pyg()
        data.x = torch.from_numpy(noisy.degrees.astype(np.float32)[:, None])
        copies.append(data)
    with torch.inference_mode():
        for start in range(0, samples, at_once):
            joined = Batch.from_data_list(copies[start : start + at_once])
            module(joined.x, joined.edge_index, joined.batch).argmax(dim=1)


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(markdown_table([head, *rows]))


# ---- sections ----------------------------------------------------------------------------------------------------------

Curves = dict[str, list[float]]
"""Samples per second of the figure's lines, in the order of the sizes."""


def by_size(curves: Curves) -> str:
    """Against messages vectorised by hand, from 15 to 10,000 nodes."""
    texts = []
    for title, width, sizes in (("The degree as feature", 0, NODES), (f"{OWN} features of its own", OWN, NODES[1::2])):
        rows = []
        for layer in LAYERS:
            for nodes in sizes:
                graph = graph_of(nodes, width)
                smooth = smoothed(layer, graph)
                used, model = smooth.classifier.suited(graph, noise_of(graph)), smooth.classifier.module
                assert used.path == "compiled twin"
                size = used.batch_size(graph, noise_of(graph))
                samples, whole = (
                    max(size, 2**16 // nodes // size * size),
                    1024 * max(1, min(10, 2**20 // nodes // 1024)),
                )
                works = {("votes", samples): partial(votes, used, graph, samples)}
                works["checked", whole] = partial(smooth.sample, graph, samples=whole, seed=0)
                for batch in (1, 4, 16, 64, 256, 1024):
                    if batch * nodes <= 2**17:
                        works["messages", batch] = partial(vectorised, model, graph, batch)
                times = in_turns(works, rounds=3 if nodes > 1_000 else 6)
                rate = {key: key[1] / seconds for key, seconds in times.items()}
                messages = max(value for (name, _), value in rate.items() if name == "messages")
                own, checked = rate["votes", samples], rate["checked", whole]
                if not width:
                    for name, value in ((layer, own), (f"{layer}, messages", messages)):
                        curves.setdefault(name, []).append(value)
                shown = [f"{value:,.0f}" for value in (messages, own, checked)]
                ratios = [f"{value / messages:.1f}" for value in (own, checked)]
                rows.append([layer, f"{nodes:,}", *shown, *ratios, f"{own * nodes / 1e6:.1f}"])
        head = ["layers", "nodes", "messages", "votes", "checked", "votes / messages", "checked / messages"]
        texts.append(f"**{title}**, samples per second:\n\n{table([*head, 'votes x nodes, millions'], rows)}")
    return "\n\n".join(
        [
            "## Speed by number of nodes: users' PyG models",
            "Random graphs of mean degree 4, noise that removes .3 of the edges and adds as many; two layers of width 64, one "
            "thread, one run. *Messages*: PyG, vectorised by hand over as many copies as are fastest (1 to 1,024), on the same "
            "noisy copies. *Votes*: noise, checksum and answers. *Checked*: `SmoothedClassifier.sample` of 1,024 to 10,240 "
            "copies with all checks of model and graph.",
            *texts,
            f"Peak memory of a process that samples the graph of 10,000 nodes: {peak_memory():,} MiB.",
        ]
    )


def peak_memory() -> int:
    """MiB."""
    code = (
        f"import re, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import torch; torch.set_num_threads(1)\n"
        "from performance import graph_of, smoothed\n"
        "smoothed('GCNConv', graph_of(10_000)).sample(graph_of(10_000), samples=1024, seed=0)\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout) // 1024


def usual_ways(curves: Curves) -> str:
    """What people do without vectorising."""
    rows = []
    for nodes in (15, 100):
        graph = graph_of(nodes)
        smooth = smoothed("GCNConv", graph)
        module = smooth.classifier.module
        works: dict[Any, Callable[[], object]] = {
            ("a loop over copies", 64): partial(collated, module, graph, 64, 1),
            ("PyG's `Batch` of 256 copies", 256): partial(collated, module, graph, 256, 256),
            ("messages, vectorised, 512 copies", 512): partial(vectorised, module, graph, 512),
            ("flipproof, with all checks", 10_240): partial(smooth.sample, graph, samples=10_240, seed=0),
        }
        times = in_turns(works, rounds=4)
        slowest = max(seconds / key[1] for key, seconds in times.items())
        for (name, samples), seconds in times.items():
            rows.append([f"{nodes}", name, f"{samples / seconds:,.0f}", f"{slowest * samples / seconds:,.0f}"])
    return "\n\n".join(
        [
            "## Usual ways to ask about noisy copies",
            "The GCNConv network of the first table, the degree as feature.",
            table(["nodes", "way", "samples per second", "times the slowest"], rows),
        ]
    )


def paths(curves: Curves) -> str:
    """What each path makes of the same batch, whatever is chosen."""
    torch.manual_seed(0)
    rows, named = [], {"num_classes": CLASSES, "seed": 0}
    networks = {
        "GCN": fp.models.GCN(1, **named),
        "GIN": fp.models.GIN(1, **named),
        "a user's SAGEConv": Net("SAGEConv"),
    }
    settings = {"num_classes": CLASSES, "features": Degree(), "memory": 2**31}
    for name, model in networks.items():
        for nodes in (15, 30, 100, 300, 1_000, 3_000):
            graph = graph_of(nodes)
            noise = noise_of(graph)
            used = fp.SmoothedClassifier(model.eval(), noise, num_classes=CLASSES, features="degree").classifier
            used = used.suited(graph, noise)
            ways: dict[str, Classifier] = {"message passing": MessagePassingClassifier(model, **settings)}
            if hasattr(model, "forward_sparse"):
                ways["message passing"] = MessagePassingClassifier(model, call=model.forward_sparse, **settings)
            if hasattr(model, "forward_sparse") and nodes <= 1_000:
                ways["dense"] = DenseClassifier(model, **settings)
            ways[used.path] = used
            rate = {}
            for way, classifier in ways.items():
                size = classifier.batch_size(graph, noise)
                batch: NoisyBatch = SampleStream(graph, noise, seed=0).batch(0, size)[0]
                rate[way] = size / in_turns({way: partial(classifier.labels, batch)}, rounds=4)[way]
            shown = [
                f"{rate[way]:,.0f}" if way in rate else "" for way in ("dense", "message passing", "compiled twin")
            ]
            rows.append([name, f"{nodes:,}", *shown, used.path])
    return "\n\n".join(
        [
            "## Paths",
            "Answers per second on each path, noise not counted, for the graphs and the noise of the first table; the degree as "
            "feature.",
            table(["model", "nodes", "dense", "message passing", "compiled twin", "chosen"], rows),
        ]
    )


def profiles(curves: Curves) -> str:
    """Where the time of a sample goes."""
    rows = []
    for layer in ("GCNConv", "GINConv", "SAGEConv"):
        for nodes in (15, 30, 300, 3_000):
            graph = graph_of(nodes)
            used = smoothed(layer, graph).classifier.suited(graph, noise_of(graph))
            samples = used.batch_size(graph, noise_of(graph)) * 2
            work = partial(votes, used, graph, samples)
            best = in_turns({"": work}, rounds=10)[""] / samples
            profile = cProfile.Profile()
            profile.runcall(lambda: [work() for _ in range(10)])  # noqa: B023
            timed = pstats.Stats(profile).stats  # type: ignore[attr-defined]
            names = {key: key[2].rpartition(" ")[2].rstrip(">").rpartition(".")[2].strip("'") for key in timed}
            names |= {key: key[2].split("'")[1] for key in timed if key[2].startswith("<method")}
            spent = {part: sum(timed[key][2] for key in timed if names[key] in those) for part, those in PARTS.items()}
            whole = sum(values[2] for values in timed.values())
            shares = [f"{value / whole:.0%}" for value in (*spent.values(), whole - sum(spent.values()))]
            rows.append([layer, f"{nodes:,}", f"{best * 1e6:,.1f}", *shares])
    return "\n\n".join(
        [
            "## Where the time goes",
            "The models and graphs of the first table, the degree as feature: µs per sample, and the share of its parts (by a "
            "profiler, which makes Python's part look larger than it is).",
            table(["layers", "nodes", "µs", *PARTS, "rest"], rows),
        ]
    )


def certificates(curves: Curves) -> str:
    """What reading a certificate costs beside the sampling, at the paper's three noises."""
    rows = []
    data = fp.datasets.split(fp.datasets.topologies())
    graphs = [data.test[index] for index in range(8)]
    for keep in (0.9, 0.8, 0.7):
        noise, model = fp.EdgeNoise(keep=keep), fp.models.GCN(in_features=1, num_classes=CLASSES, seed=0)
        fp.train(model, data.train, noise=noise, epochs=15, seed=0, features="degree")
        smooth, spent = fp.SmoothedClassifier(model, noise, features="degree"), np.zeros(3)
        for graph in graphs:
            sampled = smooth.sample(graph, samples=10_000, seed=0)
            works: dict[Any, Callable[[], object]] = {
                "sampling": partial(smooth.sample, graph, samples=10_000, seed=0),
                "votes": partial(fp.certify_votes, sampled, method="votes"),
                "influence": partial(fp.certify_votes, sampled, method="influence"),
            }
            spent += list(in_turns(works, rounds=3).values())
        shown = [f"{part / len(graphs) * 1000:.1f}" for part in spent]
        rows.append([f"{keep}", *shown, *(f"{part / spent[0]:.3f}" for part in spent[1:])])
    return "\n\n".join(
        [
            "## Certificates",
            f"flipproof's GCN, trained for 15 epochs, 10,000 samples per graph; mean of {len(graphs)} test graphs of the paper.",
            table(
                ["keep", "sampling, ms", "votes, ms", "influence, ms", "votes / sampling", "influence / sampling"], rows
            ),
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

    works: dict[Any, Callable[[], object]] = {
        "PyG's loop, without noise": by_pyg,
        "flipproof's GCN, without noise": lambda: by_us(None),
        "flipproof's GCN under noise": lambda: by_us(fp.EdgeNoise(add=0.002, remove=0.2)),
    }
    times = in_turns(works, rounds=4)
    first = next(iter(times.values()))
    return "\n\n".join(
        [
            "## Training",
            "One epoch of 1,000 graphs of 4 to 417 nodes (30 on average, sized like Mutagenicity), batches of 32, GCN of two "
            "layers, width 64.",
            table(
                ["", "seconds", "times PyG's speed"],
                [[name, f"{t:.2f}", f"{first / t:.1f}"] for name, t in times.items()],
            ),
        ]
    )


def two_cores(curves: Curves) -> str:
    """Wall time on one core and on two, from 15 to 10,000 nodes."""
    from flipproof.engines import Processes

    rows = []
    for nodes in NODES:
        count, samples = max(2, 4_000 // nodes // 2 * 2), 10_240
        graphs = [graph_of(nodes, degree=4 + number / count) for number in range(count)]
        smooth, walls = smoothed("GCNConv", graphs[0]), dict[str, float]()
        for _ in range(2):
            for name, engine in (("one", None), ("two", Processes(2))):
                started = time.perf_counter()
                smooth.certify_all(graphs, samples=samples, seed=0, method="votes", engine=engine)
                walls[name] = min(walls.get(name, np.inf), time.perf_counter() - started)
        rows.append([f"{nodes:,}", str(count), f"{samples:,}", *(f"{wall:.2f}" for wall in walls.values())])
        rows[-1].append(f"{walls['one'] / walls['two']:.2f}")
    return "\n\n".join(
        [
            "## Two cores",
            "GCNConv, the degree as feature, `certify_all` with all checks; wall time in seconds, best of 2 rounds in turns. The "
            f"machine's load before was {os.getloadavg()[0]:.1f}.",
            table(["nodes", "graphs", "samples", "one core", "two", "gain"], rows),
        ]
    )


# ---- the page ----------------------------------------------------------------------------------------------------------


def figure(curves: Curves) -> bytes:
    """Samples per second by size."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "flipproof"
    from matplotlib import pyplot

    drawing, axes = pyplot.subplots(figsize=(6.5, 4), layout="constrained")
    for number, layer in enumerate(LAYERS):
        axes.plot(NODES, curves[layer], "o-", color=f"C{number}", label=layer, ms=3)
        axes.plot(NODES, curves[f"{layer}, messages"], "o:", color=f"C{number}", ms=3)
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="samples per second")
    axes.legend(fontsize=8, title="dotted: PyG, vectorised")
    content = io.BytesIO()
    drawing.savefig(content, format="svg", metadata={"Date": None})
    pyplot.close(drawing)
    return content.getvalue()


SECTIONS: dict[str, Callable[[Curves], str]] = {
    "sizes": by_size,
    "profiles": profiles,
    "paths": paths,
    "ways": usual_ways,
    "certificates": certificates,
    "training": training,
    "cores": two_cores,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="print these sections and change no file")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parent.parent / "docs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    curves: Curves = {}
    texts = []
    for name in options.only or SECTIONS:
        started = time.perf_counter()
        print(f"{name} ...", end=" ", flush=True)
        texts.append(SECTIONS[name](curves))
        print(f"{time.perf_counter() - started:.0f} s", flush=True)
    text = "\n\n".join(texts)
    if options.only:
        print(f"\n{text}")
        return
    page = options.docs / "benchmarks" / "performance.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    said = f"One run of `make bench`: {platform.machine()}, torch {torch.__version__}, numpy {np.__version__}."
    write_bytes(options.docs / "figures" / "performance.svg", figure(curves))
    write_text(page, marked(f"{before}{BEGIN}\n{stamp()}\n\n{said}\n\n{text}\n{END}{after}"))
    print(f"wrote {page} and its figure")


if __name__ == "__main__":
    main()
