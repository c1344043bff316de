"""The certificate: what is guaranteed about one prediction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.noise import EdgeNoise

GRID_LIMIT = 64


NODE_CHANGES = ("removed", "added", "changed")
"""What can happen to a node."""


@dataclass(frozen=True)
class NodeRadii:
    """Flips that an answer withstands together with changes of nodes; -1 if not even the changes alone.

    Attributes:
        nodes: Largest number of nodes that are changed, all in the same way.
        removed: Flips withstood beside removed nodes.
        added: Beside added nodes; joining them to others counts as flips.
        changed: Beside nodes with other features.

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


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is guaranteed of one smoothed prediction.

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
        grid: Which attacks of ``[additions, removals]`` are withstood; cut at the first row and column without any, at most
            64 each way.
        order: Highest order of influences in use, or largest number of flips tried together; 0 for the votes alone.
        votes_radius: The radius that the vote share alone would have given.
        seed: Seed of the noise, where known.
        node_radii: Flips withstood together with changes of nodes, where requested.
    """

    label: int | None
    radius: int
    method: str
    alpha: float
    samples: int
    counts: tuple[int, ...]
    p_lower: float
    p_upper: float
    noise: EdgeNoise | None
    num_slots: int | None
    grid: NDArray[np.bool_] = field(repr=False)
    order: int = 0
    votes_radius: int = -1
    seed: int | None = None
    node_radii: NodeRadii | None = None

    @property
    def abstains(self) -> bool:
        """Whether not even the unattacked prediction is certain enough."""
        return self.label is None

    @property
    def adds_radius(self) -> int:
        """Flips withstood from an attacker who only adds edges: the radius, or more as far as the grid (64) tells."""
        return max(self.radius, _run(self.grid[:, 0]) if self.grid.size else -1)

    @property
    def removes_radius(self) -> int:
        """Flips withstood from an attacker who only removes edges: the radius, or more as far as the grid (64) tells."""
        return max(self.radius, _run(self.grid[0]) if self.grid.size else -1)

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Certificate) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        if self.abstains:
            return (
                f"abstains ({self.method}, alpha {self.alpha:g}, {self.samples:,} samples, votes {list(self.counts)})"
            )
        flips = f"any {self.radius} edge flip{'s' * (self.radius != 1)}" if self.radius else "no edge flip"
        return (
            f"class {self.label}, certified against {flips} ({self.method}, alpha {self.alpha:g}, "
            f"{self.samples:,} samples, share of votes at least {self.p_lower:.4f})"
            f"{'' if self.node_radii is None else f'; {self.node_radii}'}"
        )

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
            **{name: getattr(self, name) for name in ("alpha", "samples")},
            "counts": list(self.counts),
            **{name: getattr(self, name) for name in ("p_lower", "p_upper")},
            "p_add": None if noise is None else noise.p_add,
            "p_remove": None if noise is None else noise.p_remove,
            **{name: getattr(self, name) for name in ("num_slots", "seed")},
            "grid": self.grid.astype(int).tolist(),
        }


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
