"""Ways to ask a model about noisy copies, for benchmarks: flipproof's own, and what a user would write with PyG."""

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Batch
from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv, global_mean_pool

import flipproof as fp
from flipproof.classifiers.classifier import Classifier
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


def vectorised(module: torch.nn.Module, graph: fp.Graph, samples: int, noise: fp.EdgeNoise = NOISE) -> None:
    """All copies as one list of edges, made by hand without a loop."""
    batch, _ = SampleStream(graph, noise, seed=0).batch(0, samples)
    with torch.inference_mode():
        edges, owner = (torch.from_numpy(part) for part in batch.edge_index())
        if batch.node_features is None:
            x = torch.bincount(edges[0], minlength=len(owner)).to(torch.float32).unsqueeze(1)
        else:
            x = torch.tensor(batch.node_features).repeat(samples, 1)
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
