"""What prices of votes gain, and exhaustive certificates of a network as it is. Prints Markdown.

    python benchmarks/prices.py votes --data topologies MUTAG IMDB-BINARY IMDB-MULTI PROTEINS NCI1 --root data
    python benchmarks/prices.py exhaustive --data NCI1 --root data --calls 100000
    python benchmarks/prices.py speed
    python benchmarks/prices.py incremental

``votes`` trains a GIN on sub-graphs for every number of groups and certifies the same graphs at depth 0 (the counts of votes
alone, GNNCert) and at every depth up to ``--depth``. The number of groups is chosen for each radius and depth on validation
graphs. ``exhaustive`` trains a GIN that sees no edges, one normally and one against flips. The last two are verified by trying
all flips, and on a sample of small graphs all pairs of flips; beside them the strongest attack. ``speed`` measures one
certificate of 30 nodes, ``incremental`` a network whose first layer is not computed anew for every flip. Times are processor
times.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import flipproof as fp
from flipproof.certificates.metrics import mean_radius, right_radii, shares
from flipproof.datasets.splits import drawn
from flipproof.defences.baselines import Undefended

RADII = (0, 1, 2, 3, 4, 5, 7, 10)
EPOCHS = {"topologies": 200, "MUTAG": 200, "IMDB-BINARY": 100, "IMDB-MULTI": 100, "PROTEINS": 40, "NCI1": 40}


def load(name: str, root: str, seed: int) -> tuple[fp.datasets.Split, Any, int, int]:
    """The split, the node features, their width and the number of classes."""
    data = fp.datasets.topologies(480, seed=seed) if name == "topologies" else fp.datasets.tu(name, root=root)
    split = fp.datasets.split(data, test=1 / 3 if name == "topologies" else 0.2, validation=0.1, seed=seed)
    own = data.num_node_features
    return split, None if own else "degree", own or 1, data.num_classes


def some(graphs: fp.datasets.Dataset, most: int | None, seed: int) -> list[fp.Graph]:
    """All graphs of a part, or so many, drawn at random with every class in proportion."""
    return list(graphs) if most is None else [graphs[int(index)] for index in drawn(graphs, most, seed=seed)]


def trained(
    split: fp.datasets.Split, features: Any, width: int, classes: int, *, groups: int, seed: int, **settings: Any
) -> tuple[fp.models.GIN, float]:
    """A GIN trained on sub-graphs, or with one group on the graphs as they are, and the processor seconds it took."""
    network = fp.models.GIN(width, classes, seed=seed, **settings.pop("network", {}))
    votes = {"groups": groups, "renumber": True, "copies": 2} if groups > 1 else {"groups": 1}
    path = settings.pop("path", None)
    chosen = {"batch_size": 64, "learning_rate": 0.005, "average": 0.99, **votes, **settings}
    if path is not None and path.exists():
        stored = torch.load(path)
        network.load_state_dict(stored["weights"])
        return network.eval(), stored["seconds"]
    started = time.process_time()
    fp.train_voting(network, split.train, validation=split.validation, features=features, seed=seed, **chosen)
    seconds = time.process_time() - started
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"weights": network.state_dict(), "seconds": seconds}, path)
    return network, seconds


def radii_of(certificates: Sequence[fp.Certificate], graphs: Sequence[fp.Graph]) -> np.ndarray:
    labels = [graph.label for graph in graphs]
    return right_radii([each.radius for each in certificates], [each.label for each in certificates], labels)


def line(cells: Sequence[Any]) -> str:
    shown = [f"{cell:.3f}".removeprefix("0") if isinstance(cell, float) else str(cell) for cell in cells]
    return f"| {' | '.join(shown)} |"


Measured = dict[str, np.ndarray]
"""Of one split and number of groups: radii by part and depth, ``test 1``, and (calls, ms per graph) by depth, ``cost 1``."""


def measured(options: argparse.Namespace, name: str, seed: int, groups: int) -> Measured:
    """Trains a network and certifies validation and test graphs at every depth; the same networks and graphs for all depths."""
    split, features, width, classes = load(name, options.root, seed)
    half = None if options.graphs is None else options.graphs // 2
    parts = {"validation": some(split.validation, half, seed), "test": some(split.test, options.graphs, seed)}
    epochs = options.epochs or EPOCHS[name]
    network, _ = trained(split, features, width, classes, groups=groups, epochs=epochs, seed=seed, flips=options.flips)
    voting, found = fp.VotingClassifier(network, groups, features=features), Measured()
    for part, graphs in parts.items():
        for depth in range(1, options.depth + 1):
            started = time.process_time()
            evidence = [voting.price(graph, depth=depth, calls=options.calls) for graph in graphs]
            certificates = [fp.certify_group_votes(each) for each in evidence]
            spent = 1000 * (time.process_time() - started) / len(graphs)
            found[f"{part} {depth}"] = radii_of(certificates, graphs)
            found[f"cost {depth}"] = np.array([np.mean([each.calls for each in evidence]), spent])
            if depth == 1:  # the counts of votes are in the same evidence
                found[f"{part} 0"] = radii_of([fp.certify_group_votes(each, depth=0) for each in evidence], graphs)
    started, timed = time.process_time(), parts["test"][:50]
    for graph in timed:
        voting.certify(graph, depth=0)
    found["cost 0"] = np.array([groups, 1000 * (time.process_time() - started) / len(timed)])
    return found


def kept(options: argparse.Namespace, name: str, seed: int, groups: int) -> Measured:
    """What was measured, from ``--keep`` if it is there."""
    if options.keep is None:
        return measured(options, name, seed, groups)
    asked = (
        name,
        seed,
        groups,
        options.epochs,
        options.graphs,
        options.depth,
        options.calls,
        options.flips,
    )
    path = options.keep / ("-".join(map(str, asked)) + ".npz")
    if not path.exists():
        options.keep.mkdir(parents=True, exist_ok=True)
        np.savez(path, **measured(options, name, seed, groups))
    with np.load(path) as stored:
        return dict(stored)


def votes(options: argparse.Namespace) -> None:
    """Depth 1 and more beside depth 0, same networks, same graphs."""
    depths = range(options.depth + 1)
    for name in options.data:
        found = {groups: [kept(options, name, seed, groups) for seed in options.splits] for groups in options.groups}
        tested = sum(len(split["test 0"]) for split in found[options.groups[0]])
        against = f", trained with `flips={options.flips}`" if options.flips else ""
        chosen = f"{tested} test graphs of {len(options.splits)} split{'s' * (len(options.splits) > 1)}"
        print(f"\n### {name}\n\n{chosen}, {options.epochs or EPOCHS[name]} epochs{against}.\n")
        print(line(["`T`", "depth", *(f"r = {r}" for r in RADII), "calls", "ms"]))
        print(line(["---"] * (len(RADII) + 4)))
        for groups, splits in found.items():
            for depth in depths:
                row = np.mean([shares(split[f"test {depth}"], RADII) for split in splits], axis=0).tolist()
                calls, spent = np.mean([split[f"cost {depth}"] for split in splits], axis=0)
                print(line([groups, depth, *row, f"{calls:,.0f}", f"{spent:.0f}"]), flush=True)
        for depth in depths:
            tuned = [
                tuned_row({groups: splits[at] for groups, splits in found.items()}, depth)
                for at in range(len(options.splits))
            ]
            print(line(["tuned", depth, *np.mean(tuned, axis=0).tolist(), "", ""]), flush=True)


def tuned_row(found: dict[int, Measured], depth: int) -> list[float]:
    """At every radius the share of test graphs with the number of groups that certifies most validation graphs of the split.

    A tie goes to the larger average radius on these, then to fewer groups.
    """
    row = []
    for radius in RADII:
        of = {groups: split[f"validation {depth}"] for groups, split in found.items()}
        best = max(of, key=lambda groups: (shares(of[groups], [radius])[0], mean_radius(of[groups]), -groups))
        row.append(float(shares(found[best][f"test {depth}"], [radius])[0]))
    return row


def exhaustive(options: argparse.Namespace) -> None:
    """All flips of a network as it is, and on a sample of small graphs all pairs of flips (or triples, with ``--depth 3``)."""
    (name,), (seed,) = options.data, options.splits
    split, features, width, classes = load(name, options.root, seed)
    graphs = some(getattr(split, options.part), options.graphs, seed)
    small = some(
        fp.datasets.Dataset([graph for graph in graphs if graph.num_nodes <= options.nodes]), options.pairs, seed
    )
    network = {"hidden": options.hidden, "layers": options.layers}
    training = {"epochs": options.epochs or EPOCHS[name], "learning_rate": options.learning_rate}
    print(
        f"\n### {name}, exhaustive\n\nOne flip: {len(graphs)} {options.part} graphs. More: {len(small)} of those with at most "
        f"{options.nodes} nodes. {network}, {training}\n"
    )
    deep = options.depth
    heads = ["", "r = 0", 1, "ms", "attack, 1", "small, r = 0", *range(1, deep + 1), "calls", "s", f"attack, {deep}"]
    print(line([*heads, "training s"]) + "\n" + line(["---"] * (len(heads) + 1)))
    for title in options.networks:
        if title == "edge-blind":
            blind = fp.models.EdgeBlind(fp.models.GIN(width, classes, **network, seed=seed))
            common = {"batch_size": 64, "average": 0.99, "features": features, "validation": split.validation}
            fp.train_voting(blind, split.train, groups=1, seed=seed, **common, **training)
            answers = fp.EdgeBlindClassifier(blind, features=features)
            right = [[answers.predict(graph) == graph.label for graph in part] for part in (graphs, small)]
            floors = [float(np.mean(each)) for each in right]
            print(line([title, *[floors[0]] * 2, "", "", *[floors[1]] * (deep + 1), 1, "", "", ""]), flush=True)
            continue
        flips = {} if title == "normal" else {"flips": int(title)}
        told = [name, seed, title, *network.values(), *training.values()]
        path = None if options.keep is None else options.keep / ("-".join(map(str, told)) + ".pt")
        gin, trained_in = trained(
            split, features, width, classes, groups=1, seed=seed, network=network, path=path, **training, **flips
        )
        voting, model = fp.VotingClassifier(gin, 1, features=features), Undefended(gin, features=features)
        one, ms, _ = verified(voting, graphs, depth=1, calls=None)
        two, spent, calls = verified(voting, small, depth=deep, calls=options.calls)
        first = broken(model, graphs, 1, ["greedy"]) if options.attack else []
        second = broken(model, small, deep, None) if options.attack else []
        attacked = [float(np.mean([not one_is for one_is in each])) if each else "" for each in (first, second)]
        words = f"flips={title}" if flips else title
        row = [words, *shares(one, range(2)).tolist(), f"{1000 * ms:.0f}", attacked[0]]
        row += [
            *shares(two, range(deep + 1)).tolist(),
            f"{calls:,.0f}",
            f"{spent:.2f}",
            attacked[1],
            f"{trained_in:.0f}",
        ]
        print(line(row), flush=True)
        if options.attack:
            agree = sum((radius >= 1) != one_is for radius, one_is in zip(one.tolist(), first, strict=True))
            both = sum((radius >= deep) != one_is for radius, one_is in zip(two.tolist(), second, strict=True))
            tried, worked = purchases(voting, small, options.calls)
            print(
                f"<!-- certificate and attack agree on {agree} of {len(graphs)} graphs at r = 1 and {both} of {len(small)} at "
                f"r = {deep}; {worked} of {tried} cheapest purchases, made, change the answer -->",
                flush=True,
            )


def verified(
    voting: fp.VotingClassifier, graphs: Sequence[fp.Graph], *, depth: int, calls: int | None
) -> tuple[np.ndarray, float, float]:
    """Radii of right answers (-1 for wrong ones), seconds per graph and calls per graph."""
    started = time.process_time()
    # of a graph that is answered wrongly, no certificate is wanted
    evidence = [
        voting.price(graph, depth=depth if voting.predict(graph) == graph.label else 0, calls=calls) for graph in graphs
    ]
    spent = (time.process_time() - started) / len(graphs)
    radii = radii_of([fp.certify_group_votes(each) for each in evidence], graphs)
    return radii, spent, float(np.mean([each.calls for each in evidence]))


def broken(model: Undefended, graphs: Sequence[fp.Graph], budget: int, attacks: Sequence[str] | None) -> list[bool]:
    """Which graphs are answered wrongly under the strongest attack found; wrong answers count as broken with no flip."""
    chosen = {} if attacks is None else {"attacks": attacks}
    results = [fp.attacks.strongest(model, graph, budget=budget, label=graph.label, **chosen) for graph in graphs]
    return [result.success for result in results]


def purchases(voting: fp.VotingClassifier, graphs: Sequence[fp.Graph], calls: int) -> tuple[int, int]:
    """Of how many graphs the cheapest purchase is exactly known at depth 1, and how often it succeeds when it is made."""
    known = [(graph, voting.price(graph, depth=1, calls=calls).attack()) for graph in graphs]
    made = [
        voting.predict(graph.flipped(flips)) != voting.predict(graph) for graph, flips in known if flips is not None
    ]
    return len(made), sum(made)


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


def incremental(options: argparse.Namespace) -> None:
    """All flips of one graph of 30 nodes, with the first layer of a GIN computed once and corrected at two nodes."""
    generator, nodes = np.random.default_rng(0), 30
    matrix = torch.from_numpy(np.triu(generator.random((nodes, nodes)) < 0.075, 1)).float()
    matrix = matrix + matrix.T
    network = fp.models.GIN(37, 2, seed=0).eval()
    first, later = network.blocks[0], fp.models.GIN(37, 2, layers=2, seed=0).eval()
    later.blocks, later.norm, later.head, later.encoder = (
        network.blocks[1:],
        network.norm,
        network.head,
        torch.nn.Identity(),
    )
    features = torch.nn.functional.one_hot(torch.from_numpy(generator.integers(0, 37, nodes)), 37).float()
    u, v = torch.triu_indices(nodes, nodes, 1)
    print(line(["flips at once", "whole, µs per flip", "corrected, µs per flip", "largest difference"]))
    print(line(["---"] * 4))
    with torch.no_grad():
        start = network.encoder(features)
        normed = first.norm(start)
        gathered = normed + first.scale * (matrix @ normed)
        after = start + first(gathered, normed)

    def times(size: int) -> list[str]:
        rows = torch.arange(size).repeat(2)
        ends, others = torch.cat([u[:size], v[:size]]), torch.cat([v[:size], u[:size]])
        change, flipped = 1 - 2 * matrix[ends, others], matrix.repeat(size, 1, 1)
        flipped[rows, ends, others] += change
        mask, x = torch.ones(size, nodes, dtype=torch.bool), features.repeat(size, 1, 1)

        def whole() -> torch.Tensor:
            return network(x, flipped, mask)

        def corrected() -> torch.Tensor:
            hidden = after.repeat(size, 1, 1)
            moved = gathered[ends] + first.scale * change[:, None] * normed[others]
            hidden[rows, ends] = start[ends] + first(moved, normed[ends])
            return later(hidden, flipped, mask)

        spent: dict[str, list[float]] = {"whole": [], "corrected": []}
        for _ in range(100):
            for way in (whole, corrected):
                started = time.process_time()
                way()
                spent[way.__name__].append(1e6 * (time.process_time() - started) / size)
        difference = float((whole() - corrected()).abs().max())
        return [*(f"{np.median(each):.1f}" for each in spent.values()), f"{difference:.0e}"]

    with torch.no_grad():
        for size in (64, 128, len(u)):
            print(line([size, *times(size)]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["votes", "exhaustive", "speed", "incremental"])
    parser.add_argument("--data", nargs="+", default=list(EPOCHS))
    parser.add_argument("--root", default="data")
    parser.add_argument("--groups", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument(
        "--graphs",
        type=int,
        help="so many test graphs (and half as many for choices), classes in proportion; by default all",
    )
    parser.add_argument("--splits", type=int, nargs="+", default=[0], help="seeds of splits and networks")
    parser.add_argument("--depth", type=int, help="by default 1 for votes, 2 for exhaustive certificates")
    parser.add_argument("--keep", type=Path, help="folder for what was measured; the same command continues from it")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--part", choices=["validation", "test"], default="test", help="graphs to verify exhaustively")
    parser.add_argument("--pairs", type=int, default=60, help="so many graphs are verified against pairs of flips")
    parser.add_argument("--nodes", type=int, default=30, help="largest of these graphs")
    parser.add_argument("--no-attack", dest="attack", action="store_false")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=0.005)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--flips", type=int, default=0)
    parser.add_argument(
        "--networks", nargs="+", default=["edge-blind", "normal", "1"], help="edge-blind, normal, or flips"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.depth = options.depth or (2 if options.what == "exhaustive" else 1)
    {"votes": votes, "exhaustive": exhaustive, "speed": speed, "incremental": incremental}[options.what](options)


if __name__ == "__main__":
    main()
