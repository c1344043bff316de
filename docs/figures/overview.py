"""Draws overview.svg, the figure of README and of the site's home page (overview-narrow.svg on a phone), and overview.csv.

Networks are trained on the paper's graphs, one without a defence and one for each defence, with settings fixed beforehand. All
160 test graphs are certified or attacked. About a minute on one core:

    python docs/figures/overview.py
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import networkx as nx
import numpy as np
from matplotlib.figure import Figure

import flipproof as fp
from flipproof.attacks import AttackResult
from flipproof.certificates.metrics import Curve, right_radii
from flipproof.defences.baselines import Undefended

SEED, EPOCHS, BUDGET, TOP = 0, 100, 5, 6
PLACE = Path(__file__).parent
COLOURS = {"local network": "#0b5c8a", "smoothing": "#c2500b", "voting": "#0f7a58"}
LINES = {"local network": ("-", "o"), "smoothing": ("--", "s"), "voting": ("-.", "^")}


def gin(**settings: Any) -> fp.models.GIN:
    return fp.models.GIN(in_features=1, num_classes=8, seed=SEED, **settings)


def defences(train: Any) -> dict[str, Any]:
    """The three defences, each with a network trained for it."""
    noise = fp.EdgeNoise(keep=0.8)
    smoothed, voter, local = gin(noise=noise), gin(), fp.models.Local(in_features=0, num_classes=8, seed=SEED)
    fp.train(smoothed, train, noise=noise, features="degree", epochs=EPOCHS, seed=SEED)
    fp.train_voting(voter, train, groups=5, features="degree", epochs=EPOCHS, seed=SEED)
    fp.train(local, train, budget=3, epochs=2 * EPOCHS, seed=SEED)
    return {
        "local network": fp.LocalClassifier(local),
        "smoothing": fp.SmoothedClassifier(smoothed, noise, features="degree"),
        "voting": fp.VotingClassifier(voter, groups=5, features="degree"),
    }


def certified(name: str, defence: Any, test: Any) -> tuple[Curve, list[Any]]:
    asked: dict[str, dict[str, Any]] = {"smoothing": {"samples": 5000, "seed": SEED}, "voting": {"depth": 1}}
    found = defence.certify_all(test, **asked.get(name, {}))
    radii = right_radii([one.radius for one in found], [one.label for one in found], list(test.labels))
    return Curve.of(name, radii, TOP), found


def attacked(model: Any, test: Any) -> tuple[Curve, list[AttackResult]]:
    """Of the undefended network: what a greedy attack of up to r flips leaves right."""
    found = [fp.attacks.greedy(model, graph, budget=BUDGET, features="degree", num_classes=8) for graph in test]
    stands = np.array([result.size - 1 if result.success else TOP for result in found])
    return Curve.of("no defence, attacked", stands, BUDGET), found


def draw_example(axes: Any, graph: fp.Graph, result: AttackResult, title: str) -> None:
    places = nx.kamada_kawai_layout(graph.to_networkx())
    present = set(map(tuple, graph.edges.tolist()))
    for u, v in sorted(present | set(result.flips)):
        flipped = (u, v) in result.flips
        style = {"color": "#c0392b", "linewidth": 2.4} if flipped else {"color": "0.6", "linewidth": 1.1}
        axes.plot(
            *zip(places[u], places[v], strict=True),
            zorder=1,
            linestyle="--" if flipped and (u, v) in present else "-",
            **style,
        )
    axes.scatter(*np.array([places[node] for node in range(graph.num_nodes)]).T, s=26, color="0.2", zorder=2)
    axes.set_axis_off()
    axes.set_aspect("equal")
    axes.set_title(title, fontsize=9, loc="left")


def draw_curves(axes: Any, curves: list[Curve], under_attack: Curve, floor: float) -> None:
    for curve in curves:
        line, marker = LINES[curve.name]
        steps = np.arange(TOP + 1)
        low, high = curve.band
        axes.fill_between(steps, low, high, color=COLOURS[curve.name], alpha=0.12, linewidth=0, step="mid")
        axes.step(steps, curve.accuracy, where="mid", color=COLOURS[curve.name], linestyle=line, linewidth=1.8)
        axes.plot(steps, curve.accuracy, marker, color=COLOURS[curve.name], markerfacecolor="white", markersize=5)
        axes.plot(
            [],
            [],
            line,
            marker=marker,
            color=COLOURS[curve.name],
            markerfacecolor="white",
            label=f"{curve.name}: proven",
        )
    steps = np.arange(BUDGET + 1)
    axes.plot(steps, under_attack.accuracy, ":x", color="0.35", linewidth=1.6, label="no defence: left by an attack")
    axes.axhline(floor, color="#b03a2e", linewidth=1.2, linestyle=(0, (1, 2)), label="a classifier that ignores edges")
    axes.set(
        xlabel="edges that the attacker may flip",
        ylabel="share of graphs classified correctly",
        ylim=(-0.02, 1.03),
        xlim=(-0.4, TOP + 0.4),
    )
    axes.set_xticks(range(TOP + 1))
    axes.grid(color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def example(test: Any, attacks: list[AttackResult], certificates: list[Any]) -> int:
    """The first graph that one flip turns without a defence, and that a defence answers right with the largest radius."""
    fallen = [index for index, result in enumerate(attacks) if result.success and result.size == 1]
    held = [index for index in fallen if certificates[index].label == test.labels[index]]
    return max(held, key=lambda index: certificates[index].radius)


def main() -> None:
    data = fp.datasets.split(fp.datasets.topologies(480, seed=SEED))
    names = data.test.class_names
    bare = gin()
    fp.train(bare, data.train, features="degree", epochs=EPOCHS, seed=SEED)
    under_attack, attacks = attacked(bare, data.test)
    found = {name: certified(name, defence, data.test) for name, defence in defences(data.train).items()}
    blind = fp.models.NodeStatistics(
        num_classes=8
    )  # the best of forest, perceptron and majority class, chosen on training graphs
    blind.fit(data.train, seed=SEED)
    answers = fp.EdgeBlindClassifier(blind).certify_all(data.test)
    floor = float(fp.certified_accuracy(answers, data.test.labels, [0])[0])
    curves = [curve for curve, _ in found.values()]
    with (PLACE / "overview.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["curve", "r", "graphs_right", "graphs", "share", "low95", "high95"])
        for curve in [*curves, under_attack]:
            for r, (count, low, high) in enumerate(zip(curve.certified, *curve.band, strict=True)):
                writer.writerow(
                    [curve.name, r, count, curve.graphs, *(f"{x:.4f}" for x in (count / curve.graphs, low, high))]
                )
        writer.writerow(
            [
                "a classifier that ignores edges",
                "every",
                round(floor * len(data.test)),
                len(data.test),
                f"{floor:.4f}",
                "",
                "",
            ]
        )
    index = example(data.test, attacks, found["local network"][1])
    held = found["local network"][1][index].radius
    after = bare_answer(bare, attacks[index])
    with matplotlib.rc_context({"svg.hashsalt": "flipproof", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(9.2, 3.7), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 2))
        own = names[data.test.labels[index]]
        title = (
            f"Without a defence, one flip makes\nthe network say “{names[after]}” of this\n{own}. With a defence, it is "
            f"proven\nthat no {held} flips can change the answer."
        )
        draw_example(left, data.test[index], attacks[index], title)
        draw_curves(right, curves, under_attack, floor)
        figure.savefig(PLACE / "overview.svg", metadata={"Date": None}, bbox_inches="tight")
        narrow = Figure(figsize=(4.4, 6.4), layout="constrained")  # for a phone
        above, below = narrow.subplots(2, 1, height_ratios=(2, 3))
        draw_example(above, data.test[index], attacks[index], title)
        draw_curves(below, curves, under_attack, floor)
        below.legend(frameon=False, fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.45, -0.2))
        narrow.savefig(PLACE / "overview-narrow.svg", metadata={"Date": None}, bbox_inches="tight")


def bare_answer(model: Any, result: AttackResult) -> int:
    """What the undefended network says about the attacked graph."""
    return int(Undefended(model, features="degree").predict(result.graph))


if __name__ == "__main__":
    main()
