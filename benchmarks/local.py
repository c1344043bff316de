"""Certified accuracy of local networks: one network for all radii, the budget that it is asked for chosen on validation graphs.

    python benchmarks/local.py                                             # the paper's graphs, one split, three networks
    python benchmarks/local.py --data IMDB-BINARY --root data --folds 10   # every graph is a test graph once
    python benchmarks/local.py --data IMDB-BINARY --root data --counts-only   # the same without votes
    python benchmarks/local.py --data NCI1 --root data --budget 3 --epochs 60
    python benchmarks/local.py --data NCI1 --root data --speed             # time beside a GIN of the same size, as ratios

Nothing is chosen on test graphs. A network is trained for all budgets up to --budget on three quarters of the training graphs and
certified on the last quarter, once for each budget it can be asked for. Shown at r is a network trained anew on all training
graphs, asked for the budget r, or for the one with the highest certified accuracy at r on that quarter if it is better there by
more than a standard error of the paired difference. Beside it stands the edge-blind line,
fp.models.NodeStatistics, chosen on the same validation graphs. Intervals are 95%, of Wilson, over all test graphs that were
certified; those of the gain over the line are of paired differences. Printed is Markdown; finished networks are kept in --kept
and not trained again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import flipproof as fp
from flipproof.progress import note

RADII = (0, 1, 2, 3, 5, 10)
BUDGETS = (1, 2, 3, 5, 10)


def network(graphs: Sequence[fp.Graph], classes: int, options: argparse.Namespace, seed: int) -> Any:
    features = graphs[0].node_features
    width = 0 if features is None else features.shape[1]
    sizes = {"hidden": options.hidden}
    read = {"counts_only": options.counts_only}
    return fp.models.Local(width, classes, **read, seed=seed, **sizes)


def measure(
    train: Sequence[fp.Graph], test: Sequence[fp.Graph], classes: int, options: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """For each budget the radius of every test graph, -1 where the answer is wrong, and what it cost."""
    model = network(train, classes, options, seed)
    started = time.process_time()
    fp.train(model, train, budget=options.budget, epochs=options.epochs, seed=seed)
    between = time.process_time()
    radii = {}
    for budget in budgets(options):
        certificates = fp.LocalClassifier(model, budget=budget).certify_all(test)
        radii[str(budget)] = [
            certificate.radius if certificate.label == graph.label else -1
            for certificate, graph in zip(certificates, test, strict=True)
        ]
    each = (time.process_time() - between) / len(test) / len(radii)
    return {"radii": radii, "seconds": between - started, "milliseconds": 1000 * each}


def certified(run: dict[str, Any], asked: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each graph is certified at each of the radii, for each budget, ``[budgets, radii, graphs]``."""
    radii = np.array([run["radii"][str(budget)] for budget in asked])
    return radii[:, None, :] >= np.array(RADII)[:, None]


def budgets(options: argparse.Namespace) -> list[int]:
    return [budget for budget in BUDGETS if budget <= options.budget]


def chosen_budgets(found: NDArray[np.bool_], asked: Sequence[int]) -> NDArray[np.int64]:
    """The budget to ask for at each radius, as a place in ``asked``, from certificates ``[budgets, radii, graphs]``."""
    shares = found.mean(axis=2)
    own = np.array([np.argmin(np.abs(np.array(asked) - max(radius, 1))) for radius in RADII])
    best, at = shares.argmax(axis=0), np.arange(len(RADII))
    gains = found[best, at].astype(float) - found[own, at]
    return np.where(gains.mean(axis=1) > gains.std(axis=1) / math.sqrt(found.shape[2]), best, own)


def edge_blind(train: Any, validation: Any, test: Any, classes: int, seed: int) -> list[bool]:
    """Which test graphs the strong line gets right: the better of a forest and a perceptron that see no edges."""
    model = fp.models.NodeStatistics(classes)
    model.fit(train, validation=validation, seed=seed)
    return [int(answer) == graph.label for answer, graph in zip(model(test), test, strict=True)]


def speed(data: Any, options: argparse.Namespace) -> None:
    """Training time over that of a GIN of the same width on the same graphs, and certificates per second."""
    parts = fp.datasets.split(data, test=0.2, seed=0)
    train, test = list(parts.train), list(parts.test)[:200]
    width = 1 if train[0].node_features is None else train[0].node_features.shape[1]
    local = network(train, data.num_classes, options, 0)
    gin = fp.models.GIN(width, data.num_classes, hidden=options.hidden, seed=0)
    seconds = []
    for model, arguments in ((gin, {"batch_size": 64}), (local, {"budget": options.budget})):
        ends = []
        for epochs in (2, 12):  # what is done once, before the first epoch, is no part of the ratio
            started = time.process_time()
            fp.train(model, train, epochs=epochs, **arguments)
            ends.append(time.process_time() - started)
        seconds.append((ends[1] - ends[0]) / 10)
    rates = []
    for loud in (True, False) if local.in_features else (True,):
        if local.in_features:  # silent votes are certified faster
            local.hear([float(loud)])
        defended = fp.LocalClassifier(local)
        defended.certify_all(test[:10])
        started = time.process_time()
        defended.certify_all(test)
        rates.append(f"{len(test) / (time.process_time() - started):.0f}")
    print(
        f"{options.data}, budget {options.budget}: an epoch takes {seconds[1]:.2f} s of processor time, "
        f"{seconds[1] / seconds[0]:.2f} times that of a GIN of the same width; {rates[0]} certificates per second"
        + (f", {rates[1]} where votes are silent." if len(rates) > 1 else ".")
    )


def divided(data: Any, options: argparse.Namespace) -> Iterator[tuple[int, list[fp.Graph], list[fp.Graph]]]:
    """Number, training graphs and test graphs of every repetition."""
    if options.data == "topologies":
        parts = fp.datasets.split(data, seed=options.data_seed, train=320)
        for repeat in range(options.repeats):
            yield repeat, list(parts.train), list(parts.test)
    else:
        for number, fold in enumerate(fp.datasets.folds(data, number=options.folds, seed=0)):
            if number < (options.first or options.folds):
                yield number, list(fold.train), list(fold.test)


def row(name: str, values: Sequence[float], places: Sequence[int]) -> str:
    return f"| {name} | " + " | ".join(f"{values[place]:.3f}" for place in places) + " |"


def intervals(name: str, ends: Sequence[tuple[float, float]], places: Sequence[int]) -> str:
    return f"| {name} | " + " | ".join(f"{ends[place][0]:.3f} to {ends[place][1]:.3f}" for place in places) + " |"


def interval(share: float, number: int) -> tuple[float, float]:
    """Wilson's, 95%."""
    z = 1.96
    middle, half = share + z * z / (2 * number), z * math.sqrt(share * (1 - share) / number + z * z / (4 * number**2))
    return (middle - half) / (1 + z * z / number), (middle + half) / (1 + z * z / number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="topologies")
    parser.add_argument("--root", default="data")
    parser.add_argument(
        "--attributes", action="store_true", help="read real-valued node attributes, too, not only labels"
    )
    parser.add_argument("--counts-only", action="store_true", help="read numbers of nodes and edges alone")
    parser.add_argument("--data-seed", type=int, default=0, help="seed that makes the paper's graphs and splits them")
    parser.add_argument("--budget", type=int, default=10, help="largest budget that networks are trained for")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--hidden", type=int, default=64, help="width of the layers")
    parser.add_argument("--repeats", type=int, default=3, help="networks on the paper's graphs")
    parser.add_argument("--folds", type=int, default=10, help="folds of other graphs")
    parser.add_argument("--first", type=int, help="measure only so many of the folds")
    parser.add_argument("--only", type=int, help="one repetition or fold; what is kept is put together without it")
    parser.add_argument("--speed", action="store_true", help="measure time only")
    parser.add_argument("--kept", type=Path, default=Path("results/local"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    paper = options.data == "topologies"
    data = (
        fp.datasets.topologies(480, seed=options.data_seed)
        if paper
        else fp.datasets.tu(options.data, root=options.root, attributes=options.attributes)
    )
    if options.speed:
        speed(data, options)
        return
    asked = budgets(options)
    places = [place for place, radius in enumerate(RADII) if radius <= options.budget]
    chosen, everything, lines, costs, sizes = [], [], [], [], []
    for number, train, test in divided(data, options):
        if options.only not in (None, number):
            continue
        inner = fp.datasets.split(train, test=0.25, seed=number)
        first, second = list(inner.train), list(inner.test)

        def once(kind: str, make: Callable[[], Any], repeat: int = number) -> Any:
            numbers = [options.data_seed, repeat, options.budget, options.epochs, options.hidden]
            name = options.data + "-counts" * options.counts_only
            name += "-attributes" * options.attributes
            path = options.kept / ("-".join(map(str, [name, kind, *numbers, options.folds])) + ".json")
            if not path.exists():
                found = make()
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(found))
                note(f"{path.stem} is done")
            return json.loads(path.read_text())

        held_out = once("validation", lambda: measure(first, second, data.num_classes, options, number))  # noqa: B023
        tested = once("test", lambda: measure(train, test, data.num_classes, options, number))  # noqa: B023
        found = certified(tested, asked)
        everything.append(found)
        best = chosen_budgets(certified(held_out, asked), asked)
        chosen.append(found[best, np.arange(len(RADII))])
        costs.append((tested["seconds"], tested["milliseconds"]))
        sizes.append(len(test))
        lines.append(once("line", lambda: edge_blind(first, second, test, data.num_classes, number)))  # noqa: B023
    what = f"{len(sizes)} network(s) on one split" if paper else f"{len(sizes)} of {options.folds} folds"
    print(f"{options.data}, {sum(sizes[:1] if paper else sizes)} test graphs, {what}, {options.epochs} epochs\n")
    print("| certified accuracy at r = | " + " | ".join(str(RADII[place]) for place in places) + " |")
    print("|---" * (len(places) + 1) + "|")
    # several networks on the same graphs: their mean per graph; folds: one graph after the other
    put_together = partial(np.mean, axis=0) if paper else partial(np.concatenate, axis=-1)
    shares, line = (put_together([np.asarray(part, dtype=float) for part in parts]) for parts in (chosen, lines))
    print(row("**budget chosen on validation graphs**", shares.mean(axis=1), places))
    ends = [interval(share, len(line)) for share in shares.mean(axis=1)]
    print(intervals("95% interval", ends, places))
    if len(chosen) > 1:
        print(
            row(
                "standard deviation over " + ("networks" if paper else "folds"),
                np.std([part.mean(axis=1) for part in chosen], axis=0, ddof=1),
                places,
            )
        )
    for index, budget in enumerate(asked):
        print(row(f"asked for {budget}", put_together(everything)[index].mean(axis=1), places))
    print(row("edge-blind", [line.mean()] * len(RADII), places))
    gains = shares - line
    half = 1.96 * gains.std(axis=1, ddof=1) / math.sqrt(len(line))
    print(
        intervals(
            "gain over it, 95% interval",
            [(gain - by, gain + by) for gain, by in zip(gains.mean(axis=1), half, strict=True)],
            places,
        )
    )
    seconds, milliseconds = np.mean(costs, axis=0)
    print(f"\nTraining took {seconds:.0f} s of processor time on average, a certificate {milliseconds:.1f} ms.")


if __name__ == "__main__":
    main()
