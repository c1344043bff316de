"""What a second core gives ``certify_all``, and what it could give on this machine at most.

    python benchmarks/two_cores.py [--graphs 200] [--rounds 3] [--model gcn pyg]

One process, two workers, and two processes that know nothing of each other with half of the graphs each: what the last one
gains is the most that this machine has to give, since two cores share memory and clock. The paper's test graphs, 10,000 samples;
flipproof's GCN, or a user's GCNConv net through its twin. Wall times in turns, best of the rounds; certificates must be
the same. Prints Markdown, with processor times beside, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import time
from collections.abc import Callable

import torch

import flipproof as fp
from flipproof.engines import Processes

SAMPLES = 10_000


class Net(torch.nn.Module):
    """What a user brings."""

    num_classes = 8

    def __init__(self) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.first, self.second, self.out = GCNConv(1, 64), GCNConv(64, 64), torch.nn.Linear(64, 8)

    def forward(self, x, edge_index, batch):  # type: ignore[no-untyped-def]
        from torch_geometric.nn import global_mean_pool

        x = self.first(x, edge_index).relu()
        return self.out(global_mean_pool(self.second(x, edge_index).relu(), batch))


def spent() -> tuple[float, float]:
    """Processor seconds of this process, and of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def apart(work: Callable[[list[fp.Graph]], object], graphs: list[fp.Graph]) -> None:
    """Two processes with every other graph each."""
    context = multiprocessing.get_context("fork")
    team = [context.Process(target=work, args=(graphs[start::2],)) for start in (0, 1)]
    for process in team:
        process.start()
    for process in team:
        process.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", nargs="+", choices=("gcn", "pyg"), default=["gcn", "pyg"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    graphs = list(fp.datasets.split(fp.datasets.topologies(3 * options.graphs)).test)
    print(f"{len(graphs)} graphs, {SAMPLES:,} samples, load {os.getloadavg()[0]:.1f}\n")
    print("| model | way | wall, s | gain | processor s | of it this process |\n|---|---|---|---|---|---|")
    for name in options.model:
        model = Net() if name == "pyg" else fp.models.GCN(in_features=1, num_classes=8, seed=0)
        smooth = fp.SmoothedClassifier(model.eval(), fp.EdgeNoise(keep=0.9), features="degree")

        def certify(members: list[fp.Graph], workers: int | None = None) -> list[fp.Certificate]:
            engine = None if workers is None else Processes(workers)
            return smooth.certify_all(members, samples=SAMPLES, seed=0, method="votes", engine=engine)  # noqa: B023

        certify(graphs[:4])
        ways: dict[str, Callable[[], object]] = {
            "one process": lambda: certify(graphs),
            "two workers": lambda: certify(graphs, 2),
            "two processes apart": lambda: apart(certify, graphs),
        }
        found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
        answers: dict[str, object] = {}
        for _ in range(options.rounds):
            for way, work in ways.items():
                wall, (own, children) = time.perf_counter(), spent()
                answers[way] = work()
                after = spent()
                found[way].append((time.perf_counter() - wall, after[0] - own, after[1] - children))
        assert answers["one process"] == answers["two workers"]
        least = {way: min(costs) for way, costs in found.items()}
        for way, (wall, own, children) in least.items():
            gain = least["one process"][0] / wall
            print(f"| {name} | {way} | {wall:.2f} | {gain:.2f} | {own + children:.2f} | {own:.2f} |", flush=True)


if __name__ == "__main__":
    main()
