"""What certifying many graphs costs: processor time per graph, what workers add to it, and a million graphs from that.

    python benchmarks/scaling.py [--graphs 16] [--ray]

The paper's test graphs and GCN, 10,000 samples. Everything is measured in processor seconds, which neighbours on the machine
change little; the ratio of wall times, which they spoil, is printed beside, with the load. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import flipproof as fp
from flipproof.defences.asking import ask_all
from flipproof.engines import Engine, Processes, RayCluster, ThisProcess, cores
from flipproof.engines.pool import one_thread

NOISE = fp.EdgeNoise(keep=0.9)
SAMPLES = 10_000
MILLION = 1_000_000


class Cost:
    """Processor and wall seconds of what happened inside."""

    wall = processor = 0.0


@contextmanager
def measured() -> Iterator[Cost]:
    """Of this process and of children that have ended."""
    cost = Cost()
    wall, processor = time.perf_counter(), _processor()
    yield cost
    cost.wall, cost.processor = time.perf_counter() - wall, _processor() - processor


def _processor() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def best(work: Callable[[], object], times: int = 3) -> Cost:
    """The cheapest of several runs."""
    costs = []
    for _ in range(times):
        with measured() as cost:
            work()
        costs.append(cost)
    return min(costs, key=lambda cost: cost.processor)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--graphs", type=int, default=16)
    arguments.add_argument("--ray", action="store_true", help="measure a cluster on this machine too")
    asked = arguments.parse_args()
    graphs = dict(enumerate(list(fp.datasets.split(fp.datasets.topologies()).test)[: asked.graphs]))
    network = fp.models.GCN(in_features=1, num_classes=8, seed=0).eval()
    smooth = fp.SmoothedClassifier(network, NOISE, features="degree")
    smooth.check(list(graphs.values()))
    request = smooth.defence.request(SAMPLES, seed=0)

    def sample(engine: Engine) -> dict[int, fp.Votes]:
        with one_thread():
            return {index: votes for index, votes, _ in ask_all(smooth, request, graphs, engine=engine, read=False)}

    votes = sample(ThisProcess())
    alone = best(lambda: sample(ThisProcess()))
    print(
        f"{len(graphs)} graphs, {SAMPLES:,} samples, the paper's GCN; {cores()} cores, load {os.getloadavg()[0]:.1f}\n"
    )
    print("| sampling on | processor ms per graph | wall time, one process / this | speed-up if the cores are free |")
    print("|---|---|---|---|")
    engines: list[tuple[str, Engine, int]] = [("1 process", ThisProcess(), 1), ("2 processes", Processes(2), 2)]
    for name, engine, workers in engines:
        cost = alone if workers == 1 else best(lambda engine=engine: sample(engine))
        free = f"{workers * alone.processor / cost.processor:.2f}"
        each = 1000 * cost.processor / len(graphs)
        print(f"| {name} | {each:.1f} | {alone.wall / cost.wall:.2f} | {free} |", flush=True)
        assert all(found == votes[index] for index, found in sample(engine).items())
    if asked.ray:
        _ray(votes, sample)
    per_graph = {
        "sampling": alone.processor / len(graphs),
        "certificate, votes": _certifying(votes, "votes"),
        "certificate, influence": _certifying(votes, "influence"),
    }
    print("\n| step | processor ms per graph | core-hours per million graphs |")
    print("|---|---|---|")
    for step, seconds in per_graph.items():
        print(f"| {step} | {1000 * seconds:.1f} | {seconds * MILLION / 3600:.1f} |")
    with tempfile.TemporaryDirectory() as folder:
        sizes = []
        for index, cast in votes.items():
            path = Path(folder) / f"{index}.npz"
            cast.save(path)
            sizes.append(path.stat().st_size)
    print(
        f"\nvotes on disk: {sum(sizes) / len(sizes) / 1000:.1f} kB per graph, {sum(sizes) / len(sizes) / 1000:.1f} GB per million"
    )


def _certifying(votes: dict[int, fp.Votes], method: str) -> float:
    cost = best(lambda: [fp.certify_votes(cast, method=method) for cast in votes.values()])
    return cost.processor / len(votes)


def _ray(votes: dict[int, fp.Votes], sample: Callable[[Engine], dict[int, fp.Votes]]) -> None:
    started = time.perf_counter()
    with RayCluster(workers=2) as cluster:
        assert sample(cluster) == votes
        ready = time.perf_counter()
        tasks = 2_000
        for _ in cluster.run(lambda task: task, range(tasks)):
            pass
        seconds = time.perf_counter() - ready
    print(
        f"\nRay, 2 workers here: {ready - started:.0f} s to start and sample once, {1000 * seconds / tasks:.1f} ms a task (wall)"
    )


if __name__ == "__main__":
    main()
