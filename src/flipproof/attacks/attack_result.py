"""What an attack found, and the accuracy that is left after attacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates.metrics import shares
from flipproof.defences.changed_nodes import with_changes
from flipproof.errors import InputError
from flipproof.graphs import Graph


@dataclass(frozen=True)
class AttackResult:
    """The smallest attack that was found on one graph; if none succeeded, the one that came nearest.

    A success says that no certificate of the same classifier and label can reach ``size`` flips.
    """

    attack: str
    graph: Graph = field(repr=False)  # after the attack
    flips: tuple[tuple[int, int], ...]  # node pairs, each once, u < v, sorted
    label: int  # the class that the classifier was to leave
    success: bool  # whether it did
    confirmed: bool | None  # on a second look, with fresh noise where the defence samples; None without a first success
    alpha: float  # probability with which a false success is confirmed; 0 where nothing is sampled
    budget: int
    margin_before: float  # lead of the label over its strongest rival, in logits or in shares of votes
    margin_after: float
    model_calls: int  # graphs that the model was asked about
    changes: tuple[tuple[int, int], ...] = ()  # nodes and their new labels, or nodes and the bits that flip, sorted

    @property
    def size(self) -> int:
        """The number of flips; changes of node features come on top."""
        return len(self.flips)

    def to_dict(self) -> dict[str, Any]:
        """Plain values only, ready for JSON; the attacked graph is the clean one after ``flips`` and ``changes``."""
        pairs = {name: [list(pair) for pair in getattr(self, name)] for name in ("flips", "changes")}
        rest = {name: value for name, value in vars(self).items() if name not in ("attack", "graph", *pairs)}
        return {"attack": self.attack, **pairs, "size": self.size, **rest}

    @classmethod
    def from_dict(cls, graph: Graph, values: Mapping[str, Any]) -> AttackResult:
        """What :meth:`to_dict` gave as ``values``, with the clean ``graph``."""
        flips, changes = (tuple((int(u), int(v)) for u, v in values.get(name, ())) for name in ("flips", "changes"))
        rest = {key: value for key, value in values.items() if key not in ("flips", "changes", "size")}
        entries = np.array([node * width_of(graph) + column for node, column in changes], dtype=np.int64)
        return cls(graph=with_changes(graph, entries).flipped(flips), flips=flips, changes=changes, **rest)


def width_of(graph: Graph) -> int:
    return 1 if graph.node_features is None else graph.node_features.shape[1]


def robust_accuracy(
    results: Sequence[AttackResult], labels: ArrayLike, radii: Iterable[int] = range(6)
) -> NDArray[np.float64]:
    """Share of graphs that are still right after the attacks of at most ``r`` flips that were found, for each ``r`` in ``radii``.

    An upper bound on the accuracy under the worst attack: a better search can only lower it. There is one label per result, and
    a graph counts as wrong if the attacked label is not this one (the answer was wrong before any attack).
    """
    truth = np.asarray(labels)
    if truth.shape != (len(results),) or not len(results):
        raise InputError(
            f"labels must be one per result, [{len(results)}], at least one; got shape {truth.shape} "
            "(pass [graph.label for graph in graphs])"
        )
    withstood = np.array([result.size - 1 if result.success else np.iinfo(np.int64).max for result in results])
    return shares(np.where(np.array([result.label for result in results]) == truth, withstood, -1), radii)
