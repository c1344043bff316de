"""Draws influence.svg: what an attack on three slots can do, given the share alone and given influences as well.

python docs/figures/influence.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import optimize

from flipproof import EdgeNoise
from flipproof.certificates.influence.lead_test import Attack, Cells

SHARE, FLIPS = 0.85, 3


def worst_classifier(order: int) -> tuple[np.ndarray, Cells]:
    """Shares given T = 0..3 of the classifier that an attack hurts most, with the moments of a constant share."""
    attack = Attack.of(EdgeNoise(keep=0.8), np.zeros(10, dtype=np.bool_), adds=FLIPS, removes=0)
    cells = Cells.of(attack.groups, attack.overlap, order)
    answer = optimize.linprog(
        cells.y,
        A_ub=-cells.x * cells.features,
        b_ub=-SHARE * (cells.features @ cells.x),
        bounds=(0, 1),
        method="highs",
    )
    return np.asarray(answer.x), cells


def main() -> None:
    plt.rcParams.update({"svg.hashsalt": "flipproof", "font.size": 9, "svg.fonttype": "none"})
    figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), sharey=True, layout="constrained")
    flips = np.arange(FLIPS + 1)
    _, cells = worst_classifier(0)
    axes[0].bar(flips - 0.2, cells.x, 0.4, color="0.65", label="clean graph")
    axes[0].bar(flips + 0.2, cells.y, 0.4, color="C3", label="attacked graph")
    axes[0].set_title("attacked slots that differ\nfrom the clean graph")
    axes[0].legend(frameon=False, fontsize=8)
    titles = ("given the share of votes", "and single slots", "and pairs of slots")
    for order, (axis, title) in enumerate(zip(axes[1:], titles, strict=True)):
        shares, cells = worst_classifier(order)
        axis.bar(flips, shares, 0.6, color="C0")
        axis.set_title(f"{title}:\n{float(cells.y @ shares):.2f} left")
    for axis in axes:
        axis.set_xticks(flips)
        axis.set_xlabel("T")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("probability")
    axes[1].set_ylabel("share of votes given T")
    figure.savefig(Path(__file__).with_name("influence.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main()
