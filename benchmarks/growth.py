"""How the time of certificates grows with nodes, samples and cores; the second half of the tables of performance.py."""

import time
from pathlib import Path

import numpy as np
from ways_to_ask import (
    NOISE,
    SAMPLES,
    SIZES,
    WAYS_TO_ASK,
    Curves,
    in_turns,
    messages,
    own,
    random_graph,
    seconds,
    spread,
    table,
    test_graphs,
)

import flipproof as fp
from flipproof.noise import SampleStream


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
