"""How fast certificates are made: the tables and the figure of docs/benchmarks/performance.md, from one run.

    python benchmarks/performance.py [--only ratios nodes ...] [--docs docs]

One thread unless said otherwise. Times are processor seconds, which neighbours on the machine change little, and the best of
a few rounds; ratios compare ways that were measured in turns on the same graphs, with the range over the graphs. Rewrites the
part of docs/benchmarks/performance.md between its markers, and docs/figures/performance.svg.
"""

import argparse
import importlib.util
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from by_size import by_size, profiles, two_cores_by_size
from growth import figure, growth_with_nodes, growth_with_samples, two_cores
from torch_geometric.loader import DataLoader
from ways_to_ask import (
    BEGIN,
    CLASSES,
    END,
    NOISE,
    SAMPLES,
    WAYS,
    Apart,
    Curves,
    Net,
    block,
    in_turns,
    matmul_rate,
    messages,
    own,
    random_graph,
    seconds,
    spread,
    table,
    test_graphs,
    user_net,
    vectorised,
)

import flipproof as fp
from flipproof.classifiers.edges import NeighbourLists
from flipproof.noise import BLOCK, SampleStream
from flipproof.studies.provenance import marked, stamp


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


SECTIONS: dict[str, Callable[[Curves], str]] = {
    "ratios": ratios,
    "layers": layers,
    "arithmetic": arithmetic,
    "beside": beside,
    "certificates": certificates,
    "sizes": by_size,
    "profiles": profiles,
    "nodes": growth_with_nodes,
    "samples": growth_with_samples,
    "training": training,
    "cores": two_cores,
    "cores by size": two_cores_by_size,
}


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
    return [name for name in SECTIONS if not name.startswith("cores") or engines is not None]


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
    said = f"One run of `make bench`: {platform.machine()}, torch {torch.__version__}, numpy {np.__version__}."
    page.write_text(marked(f"{before}{BEGIN}\n{stamp()}\n\n{said}\n\n{text}\n{END}{after}"))
    figure(curves, options.docs / "figures" / "performance.svg")
    print(f"wrote {page} and its figure")


if __name__ == "__main__":
    main()
