"""What prices of votes gain, and exhaustive certificates of a network as it is. Prints Markdown.

    python benchmarks/prices.py votes --data topologies MUTAG IMDB-BINARY IMDB-MULTI PROTEINS NCI1 --root data
    python benchmarks/prices.py exhaustive --data NCI1 --root data
    python benchmarks/prices.py speed

``votes`` trains a GIN on sub-graphs for every number of groups and reads certificates of the same evidence at depth 0 (the
counts of votes alone, GNNCert) and at depth 1. The number of groups is chosen for each radius and depth on validation graphs.
With ``--auto``, it also searches as deep as the default budget of model calls allows.
``exhaustive`` trains a GIN normally, one against flips and one that sees no edges, and verifies the first two by trying all
flips, then all pairs of flips; beside them the strongest attack. ``speed`` measures one certificate of 30 nodes. Times are
processor times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import flipproof as fp
from flipproof.certificates.metrics import right_radii, shares
from flipproof.defences.undefended import Undefended

RADII = (0, 1, 2, 3, 4, 5, 7, 10)
EPOCHS = {"topologies": 200, "MUTAG": 200, "IMDB-BINARY": 100, "IMDB-MULTI": 100, "PROTEINS": 40, "NCI1": 40}


def load(name: str, root: str, seed: int) -> tuple[fp.datasets.Split, Any, int, int]:
    """The split, the node features, their width and the number of classes."""
    data = fp.datasets.topologies(480, seed=seed) if name == "topologies" else fp.datasets.tu(name, root=root)
    split = fp.datasets.split(data, test=1 / 3 if name == "topologies" else 0.2, validation=0.1, seed=seed)
    own = data.num_node_features
    return split, None if own else "degree", own or 1, data.num_classes


def some(graphs: Sequence[fp.Graph], most: int, seed: int) -> list[fp.Graph]:
    """Random graphs of a part."""
    chosen = np.random.default_rng(seed).permutation(len(graphs))[:most]
    return [graphs[int(index)] for index in np.sort(chosen)]


def radii_of(certificates: Sequence[fp.Certificate], graphs: Sequence[fp.Graph]) -> np.ndarray:
    labels = [graph.label for graph in graphs]
    return right_radii([each.radius for each in certificates], [each.label for each in certificates], labels)


def line(cells: Sequence[Any]) -> str:
    shown = [f"{cell:.3f}".removeprefix("0") if isinstance(cell, float) else str(cell) for cell in cells]
    return f"| {' | '.join(shown)} |"


def votes(options: argparse.Namespace) -> None:
    """Depth 1 beside depth 0, same networks, same graphs."""
    for name in options.data:
        split, features, width, classes = load(name, options.root, options.seed)
        parts = {
            "validation": some(split.validation, options.graphs // 2, options.seed),
            "test": some(split.test, options.graphs, options.seed),
        }
        epochs = options.epochs or EPOCHS[name]
        print(
            f"\n### {name}\n\n{len(parts['test'])} test graphs, {epochs} epochs, at most {options.calls:,} calls per graph.\n"
        )
        print(line(["`T`", "depth", *(f"r = {r}" for r in RADII), "calls", "ms"]))
        print(line(["---"] * (len(RADII) + 4)))
        found: dict[tuple[int, int, str], np.ndarray] = {}
        for groups in options.groups:
            network = fp.models.GIN(width, classes, seed=options.seed)
            training = {"groups": groups, "renumber": True, "features": features, "seed": options.seed}
            fp.train(
                network,
                split.train,
                validation=split.validation,
                epochs=epochs,
                batch_size=64,
                learning_rate=0.005,
                average=0.99,
                copies=2,
                flips=options.flips,
                **training,
            )
            voting = fp.VotingClassifier(network, groups, features=features)
            for part, graphs in parts.items():
                started = time.process_time()
                evidence = [voting.price(graph, depth=1, calls=options.calls) for graph in graphs]
                spent = 1000 * (time.process_time() - started) / len(graphs)
                for depth in (0, 1):
                    certificates = [fp.certify_group_votes(each, depth=depth) for each in evidence]
                    found[groups, depth, part] = radii_of(certificates, graphs)
                    if part == "test":
                        calls = np.mean([each.calls for each in evidence]) if depth else groups
                        row = shares(found[groups, depth, part], RADII).tolist()
                        print(line([groups, depth, *row, f"{calls:.0f}", f"{spent:.0f}" if depth else ""]), flush=True)
            if options.auto:
                started = time.process_time()
                evidence = [voting.price(graph) for graph in parts["test"]]
                spent = 1000 * (time.process_time() - started) / len(evidence)
                row = shares(
                    radii_of([fp.certify_group_votes(each) for each in evidence], parts["test"]), RADII
                ).tolist()
                calls = np.mean([each.calls for each in evidence])
                print(line([groups, "auto", *row, f"{calls:.0f}", f"{spent:.0f}"]), flush=True)
        for depth in (0, 1):
            best = [
                max(options.groups, key=lambda groups: (shares(found[groups, depth, "validation"], [r])[0], -groups))
                for r in RADII
            ]
            row = [float(shares(found[groups, depth, "test"], [r])[0]) for r, groups in zip(RADII, best, strict=True)]
            print(line(["tuned", depth, *row, "", ""]), flush=True)


def exhaustive(options: argparse.Namespace) -> None:
    """All flips, and all pairs of flips, of a network as it is."""
    (name,) = options.data
    split, features, width, classes = load(name, options.root, options.seed)
    graphs = some([graph for graph in split.test if graph.num_nodes <= options.nodes], options.graphs, options.seed)
    common = {
        "features": features,
        "validation": split.validation,
        "batch_size": 64,
        "learning_rate": 0.005,
        "average": 0.99,
    }
    epochs = options.epochs or EPOCHS[name]
    print(
        f"\n### {name}, exhaustive\n\n{len(graphs)} test graphs of at most {options.nodes} nodes, at most "
        f"{options.calls:,} calls per graph.\n"
    )
    print(line(["", "r = 0", "1", "2", "calls", "s per graph", "attack, r = 1", "attack, r = 2", "training s"]))
    print(line(["---"] * 9))
    blind = fp.models.EdgeBlind(fp.models.GIN(width, classes, seed=options.seed))
    fp.train(blind, split.train, epochs=epochs, seed=options.seed, **common)
    answers = fp.EdgeBlindClassifier(blind, features=features)
    floor = float(np.mean([answers.predict(graph) == graph.label for graph in graphs]))
    print(line(["edge-blind", floor, floor, floor, 1, "", floor, floor, ""]), flush=True)
    for title, arguments in (
        ("trained normally", {}),
        *(
            (f"trained against {k} flip{'s' * (k > 1)}, worst of {m}", {"flips": k, "worst_of": m})
            for k, m in options.against
        ),
    ):
        network = fp.models.GIN(width, classes, seed=options.seed)
        started = time.process_time()
        fp.train(network, split.train, epochs=epochs, seed=options.seed, **common, **arguments)
        trained = time.process_time() - started
        voting = fp.VotingClassifier(network, 1, features=features)
        started = time.process_time()
        # of a graph that is answered wrongly, no certificate is wanted
        evidence = [
            voting.price(graph, depth=2 if voting.predict(graph) == graph.label else 0, calls=options.calls)
            for graph in graphs
        ]
        spent = (time.process_time() - started) / len(graphs)
        radii = radii_of([fp.certify_group_votes(each) for each in evidence], graphs)
        model = Undefended(network, features=features)
        results = [fp.attacks.strongest(model, graph, budget=2, label=graph.label) for graph in graphs]
        labels = np.array([graph.label for graph in graphs])
        attacked = fp.attacks.robust_accuracy(results, labels, range(3)).tolist()
        calls = np.mean([each.calls for each in evidence])
        row = [
            title,
            *shares(radii, range(3)).tolist(),
            f"{calls:,.0f}",
            f"{spent:.2f}",
            *attacked[1:],
            f"{trained:.0f}",
        ]
        print(line(row), flush=True)
        one = [result.size <= 1 for result in results]
        agree = sum((radius >= 1) != broken for radius, broken in zip(radii.tolist(), one, strict=True))
        bought = [(graph, each.attack()) for graph, each in zip(graphs, evidence, strict=True)]
        tried = [(graph, attack) for graph, attack in bought if attack is not None]
        worked = sum(voting.predict(graph.flipped(attack)) != voting.predict(graph) for graph, attack in tried)
        undecided = sum(
            each.depth < 2 and each.attack() is None for each, r in zip(evidence, radii, strict=True) if r >= 0
        )
        print(
            f"<!-- at r = 1 certificate and attack agree on {agree} of {len(graphs)} graphs; {worked} of {len(tried)} cheapest "
            f"purchases, made, change the answer; {undecided} graphs too large for the budget -->",
            flush=True,
        )


def speed(options: argparse.Namespace) -> None:
    """One certificate of a graph of 30 nodes at depth 1."""
    generator = np.random.default_rng(0)
    graphs = [fp.Graph(30, np.argwhere(np.triu(generator.random((30, 30)) < 0.1, 1))) for _ in range(20)]
    network = fp.models.GIN(1, 2, seed=0).eval()
    print(line(["`T`", "calls", "ms per graph, median", "fastest graph, ms"]) + "\n" + line(["---"] * 4))
    for groups in (1, 5, 10):
        voting = fp.VotingClassifier(network, groups, features="degree")
        voting.certify_all(graphs[:3], depth=1)
        calls, spent = list[int](), list[float]()
        for graph in graphs:
            started = time.process_time()
            votes = voting.price(graph, depth=1)
            fp.certify_group_votes(votes)
            spent.append(1000 * (time.process_time() - started))
            calls.append(votes.calls)
        print(line([groups, f"{np.mean(calls):.0f}", f"{np.median(spent):.1f}", f"{min(spent):.1f}"]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["votes", "exhaustive", "speed"])
    parser.add_argument("--data", nargs="+", default=list(EPOCHS))
    parser.add_argument("--root", default="data")
    parser.add_argument("--groups", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--graphs", type=int, default=160)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--nodes", type=int, default=30, help="largest graphs that are verified exhaustively")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--auto", action="store_true")
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument("--against", nargs="+", type=lambda text: tuple(map(int, text.split(","))), default=[(1, 4)])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    {"votes": votes, "exhaustive": exhaustive, "speed": speed}[options.what](options)


if __name__ == "__main__":
    main()
