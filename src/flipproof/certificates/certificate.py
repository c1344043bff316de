"""The certificate: what is guaranteed about one prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.noise import EdgeNoise

GRID_LIMIT = 64

EDGE_AXES = ("additions", "removals")

NODE_CHANGES = ("removed", "added", "changed")
"""What can happen to a node."""


@dataclass(frozen=True)
class NodeRadii:
    """Flips that an answer withstands together with changes of nodes; -1 if not even the changes alone.

    ``nodes`` is the largest number of nodes that are changed, all in the same way; joining added nodes to others counts as flips.

    >>> print(NodeRadii(nodes=1, removed=0, added=2, changed=-1))
    with 1 node removed: 0, added: 2, changed: not certified
    """

    nodes: int
    removed: int
    added: int
    changed: int

    def __str__(self) -> str:
        radii = {"removed": self.removed, "added": self.added, "changed": self.changed}
        parts = [f"{change}: {'not certified' if radius < 0 else radius}" for change, radius in radii.items()]
        return f"with {self.nodes} node{'s' * (self.nodes != 1)} {', '.join(parts)}"


@dataclass(frozen=True)
class ClassCell:
    """A cell of a table that names a class: whoever shows it knows the name."""

    label: int


@dataclass(frozen=True, eq=False)
class WeakSpots:
    """Where an attacker would strike, as far as the evidence tells.

    Attributes:
        rival: The class that would overtake first.
        flips: Node pairs ``(u, v)``, ``u < v``, in the order in which an attacker would choose them.
        succeeds: Whether the flips are known to change the answer. If not, they are a candidate attack, the worst one found.
        weights: How much each node carries of the label's lead over the rival, ``[n]``, negative where it speaks for the rival;
            ``None`` where the lead is not a sum over nodes.
        rest: The part of the lead that no single node carries.
        caption: What the table shows.
        columns: Heads of the table.
        rows: Its cells: text, numbers and classes.
    """

    rival: int
    flips: tuple[tuple[int, int], ...] = ()
    succeeds: bool = False
    weights: NDArray[np.float64] | None = None
    rest: float = 0.0
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | ClassCell, ...], ...] = ()

    def __str__(self) -> str:
        pairs = ", ".join(f"{u}–{v}" for u, v in self.flips)
        verdict = (
            "change the answer" if self.succeeds else "are the worst that was found, and may not change the answer"
        )
        return f"flips of {pairs or 'no pair'} {verdict}; nearest rival: class {self.rival}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """The guarantee for one prediction.

    No attacker who adds or removes at most ``radius`` edges can change the smoothed classifier's answer ``label``, except
    with probability at most ``alpha`` over our own sampling.

    Attributes:
        label: The class, or ``None`` when the certificate abstains.
        radius: Flips withstood, 0 included; -1 when it abstains.
        method: ``votes``, ``paper``, ``influence``, ...
        alpha: Failure probability of this certificate as a whole.
        samples: Votes it was read from.
        counts: Votes for each class.
        p_lower: Lower bound on the label's share of votes, before the attack.
        p_upper: Upper bound on every other class's share.
        noise: The noise of the smoothed classifier.
        num_slots: Node pairs of the graph that can be flipped, ``N``.
        grid: Which attacks are withstood, by the numbers of changes that :attr:`axes` names; by default
            ``[additions, removals]``. Cut at the first row and column without any, at most 64 each way.
        order: Highest order of influences in use, or largest number of flips tried together; 0 for the votes alone.
        votes_radius: The radius that the vote share alone would have given.
        seed: Seed of the noise, where known.
        node_radii: Flips withstood together with changes of nodes, where requested.
        axes: The kinds of changes along the axes of the grid: under noise on features ``("flips", "changed labels")``, say.
        feature_radius: Changed labels or bits withstood with edges untouched, under noise on features; -1 when it abstains.
        weakest: The pairs whose flips would hurt most; only :func:`flipproof.explain` looks for them.
    """

    label: int | None
    radius: int
    method: str
    alpha: float = 0.0
    samples: int
    counts: tuple[int, ...]
    p_lower: float = 1.0
    p_upper: float = 0.0
    noise: EdgeNoise | None = None
    num_slots: int | None
    grid: NDArray[np.bool_] = field(repr=False)
    order: int = 0
    votes_radius: int = -1
    seed: int | None = None
    node_radii: NodeRadii | None = None
    axes: tuple[str, ...] = EDGE_AXES
    feature_radius: int | None = None
    weakest: WeakSpots | None = field(default=None, repr=False)

    @property
    def abstains(self) -> bool:
        """Whether the votes are too close to name a class, even without an attack."""
        return self.label is None

    @property
    def adds_radius(self) -> int:
        """Flips withstood from an attacker who only adds edges: the radius, or more as far as the grid (64) tells."""
        return max(self.radius, _run(self.edge_grid[:, 0]) if self.grid.size else -1)

    @property
    def removes_radius(self) -> int:
        """Flips withstood from an attacker who only removes edges: the radius, or more as far as the grid (64) tells."""
        return max(self.radius, _run(self.edge_grid[0]) if self.grid.size else -1)

    @property
    def edge_grid(self) -> NDArray[np.bool_]:
        """Which attacks of ``[additions, removals]`` are withstood with features untouched."""
        if self.axes[:2] == EDGE_AXES:
            if not self.grid.size:
                return np.zeros((0, 0), dtype=np.bool_)
            return self.grid.reshape(*self.grid.shape[:2], -1)[:, :, 0]
        return cut_grid(up_to(self.radius, GRID_LIMIT, GRID_LIMIT))

    def radius_beside(self, changes: int) -> int:
        """Flips withstood beside any ``changes`` changed nodes, labels or bits; -1 where that is not certified."""
        if not changes:
            return self.radius
        if self.node_radii is not None and changes <= self.node_radii.nodes:
            return self.node_radii.changed
        grid = self.joint_grid
        return _run(grid[:, changes]) if grid.shape[1] > changes else -1

    @property
    def joint_grid(self) -> NDArray[np.bool_]:
        """Which attacks are withstood, by their numbers of flips and of changed labels or bits: ``[flips, changes]``."""
        if self.feature_radius is None or not self.grid.size:
            return np.zeros((0, 0), dtype=np.bool_)
        edges = 1 if self.axes[0] == "flips" else 2
        cells = np.argwhere(self.grid)
        flips, changes = cells[:, :edges].sum(axis=1), cells[:, edges:].sum(axis=1)
        shape = 1 + max(flips.max(), self.radius), 1 + max(changes.max(), self.feature_radius)
        withstood = np.zeros(shape, dtype=np.int64)
        np.add.at(withstood, (flips, changes), 1)
        # with two axes there are several ways to so many: all must be withstood
        axes = edges, self.grid.ndim - edges
        ways = [np.arange(size) + 1 if count == 2 else np.ones(size) for size, count in zip(shape, axes, strict=True)]
        every: NDArray[np.bool_] = withstood == np.multiply.outer(*ways)
        every[: self.radius + 1, 0] = every[0, : self.feature_radius + 1] = True
        return every

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Certificate) else NotImplemented

    @property
    def headline(self) -> str:
        """Answer and radius in a few words."""
        if self.abstains:
            return "abstains"
        flips = f"any {self.radius} edge flip{'s' * (self.radius != 1)}" if self.radius else "no edge flip"
        return f"class {self.label}, certified against {flips}"

    def _repr_html_(self) -> str:
        rows = [("method", self.method), ("alpha", f"{self.alpha:g}")]
        if self.alpha:
            rows += [("samples", f"{self.samples:,}"), ("share of votes at least", f"{self.p_lower:.4f}")]
        rows.append(("votes per class", ", ".join(f"{count:,}" for count in self.counts)))
        if self.weakest is not None:
            rows.append(("weakest pairs", str(self.weakest)))
        cells = "".join(f"<tr><th style='text-align:left'>{key}</th><td>{escape(text)}</td></tr>" for key, text in rows)
        return f"<div><b>{escape(self.headline)}</b><table>{cells}</table></div>"

    def __str__(self) -> str:
        more = "" if self.node_radii is None else f"; {self.node_radii}"
        if self.feature_radius is not None and not self.abstains:
            more += f"; with edges untouched against any {self.feature_words}"
        if not self.alpha:
            groups = f", {self.samples} group{'s' * (self.samples != 1)}" if self.method == "voting" else ""
            return f"{self.headline} ({self.method}, with certainty{groups}){more}"
        votes = f"votes {list(self.counts)}" if self.abstains else f"share of votes at least {self.p_lower:.4f}"
        return f"{self.headline} ({self.method}, alpha {self.alpha:g}, {self.samples:,} samples, {votes}){more}"

    @property
    def feature_words(self) -> str:
        """The feature radius with its noun: ``3 changed labels``."""
        kind = self.axes[-1].split()[-1][:-1]  # label or bit
        return f"{self.feature_radius} changed {kind}{'s' * (self.feature_radius != 1)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON."""
        first = ("label", "radius", "method", "order", "votes_radius", "adds_radius", "removes_radius")
        nodes, noise = self.node_radii, self.noise
        return {
            **{name: getattr(self, name) for name in first},
            "node_changes": None if nodes is None else nodes.nodes,
            "removed_nodes_radius": None if nodes is None else nodes.removed,
            "added_nodes_radius": None if nodes is None else nodes.added,
            "changed_nodes_radius": None if nodes is None else nodes.changed,
            **{name: getattr(self, name) for name in ("alpha", "samples", "counts", "p_lower", "p_upper")},
            "counts": list(self.counts),
            "p_add": None if noise is None else shortened(noise.p_add),
            "p_remove": None if noise is None else shortened(noise.p_remove),
            **{name: getattr(self, name) for name in ("num_slots", "seed", "feature_radius")},
            "axes": list(self.axes),
            "grid": self.grid.astype(int).tolist(),
        }


def shortened(probability: float) -> float:
    """With the nine digits that are typed and read; the exact probability is a multiple of 2**-32."""
    return float(f"{probability:.9g}")


def _run(cells: ArrayLike) -> int:
    """Index of the last entry before the first ``False``."""
    return int(np.argmin(np.append(cells, False))) - 1


def up_to(radius: int, max_adds: int, max_removes: int) -> NDArray[np.bool_]:
    """The grid of an answer that withstands any ``radius`` flips; at most 64 each way."""
    adds, removes = np.ogrid[: min(max_adds, GRID_LIMIT - 1) + 1, : min(max_removes, GRID_LIMIT - 1) + 1]
    return np.asarray(adds + removes <= radius)


def cut_grid(grid: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The grid up to its first row and column without a certified cell, at most 64 each way, read-only."""
    rows, columns = _run(np.any(grid, axis=1)) + 1, _run(np.any(grid, axis=0)) + 1
    cut = grid[: min(rows, GRID_LIMIT), : min(columns, GRID_LIMIT)].copy()
    cut.flags.writeable = False
    return cut
