"""Votes on single nodes: how often a model gave each node each class on noisy copies of one graph, and every node's certificate.

One sample of the noisy graph is a vote for every node. For each node alone its votes are independent, so that method ``votes``
holds for it as for a graph; certificates of different nodes come from the same samples, and hold together only with
``simultaneous``, which gives each of ``k`` nodes ``alpha / k``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flipproof.certificates import vote_share
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.joint_bound import with_features
from flipproof.certificates.sampled_votes import SampledEvidence
from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise import EdgeNoise, FeatureNoise


@dataclass(frozen=True, eq=False)
class NodeVotes(SampledEvidence):
    """The votes for every node of a graph, with everything that is needed to make the noise again.

    Attributes:
        counts: Votes for each node and class, ``[n, C]``; every row has the same sum, the number of samples.
        graph: The clean graph.
        noise: The noise on edges.
        seed: Seed of the noise.
        checksums: One per block of 1,024 samples: the hash of the flips of the whole block.
        labels: The nodes' true classes ``[n]`` where they are known, -1 where not; they are only compared with.
        compared: Samples that the model was asked about a second time, with the same answers.
        feature_noise: The noise on the graph's node features, if there is one.
        feature_checksums: The same as ``checksums``, for what it did to them.
    """

    kind = "votes on nodes"
    task = "nodes"
    in_blocks = True

    counts: NDArray[np.uint32]
    graph: Graph
    noise: EdgeNoise
    seed: int
    checksums: tuple[str, ...]
    labels: IntArray | None = None
    compared: int = 0
    feature_noise: FeatureNoise | None = None
    feature_checksums: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = self.counts
        if counts.ndim != 2 or counts.dtype.kind not in "iu" or len(counts) != self.graph.num_nodes:
            raise InputError(
                f"counts must be integers, a row per node, [{self.graph.num_nodes}, classes]; got {counts.dtype} of shape "
                f"{counts.shape}"
            )
        checked_count(counts.shape[1], "number of classes", 2, "count the declared classes")
        sums = counts.sum(axis=1, dtype=np.int64)
        if (sums != sums[0]).any() or sums[0] < 1 or (counts < 0).any():
            raise InputError(f"counts must add up to the number of samples at each node; got {sums.min()}-{sums.max()}")
        super().__post_init__()
        counts.flags.writeable = False
        self.__dict__["_known"] = {}  # what is worked out once for all nodes

    def __len__(self) -> int:
        return int(self.counts[0].sum())

    def __repr__(self) -> str:
        return f"NodeVotes(nodes={len(self.counts)}, samples={len(self)}, noise={self.noise}, seed={self.seed})"

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """Number of declared classes."""
        return int(self.counts.shape[1])

    def of(self, node: int) -> Self:
        """The same votes as evidence about one node."""
        one, label = copy.copy(self), -1 if self.labels is None else int(self.labels[node])
        one.__dict__["graph"] = self.graph.replaced(node=node, label=None if label < 0 else label, name=f"node {node}")
        return one

    def with_labels(self, labels: Mapping[int, int | None]) -> Self:
        """The same votes with the true classes of some nodes, where they are known."""
        known = np.full(len(self.counts), -1)
        for node, label in labels.items():
            known[node] = -1 if label is None else label
        return replace(self, labels=known)

    def _once(self, key: Any, work: Callable[[], Any]) -> Any:
        known: dict[Any, Any] = self.__dict__["_known"]
        if key not in known:
            known[key] = work()
        return known[key]

    @property
    def digest(self) -> str:
        return str(self._once("digest", lambda: super(NodeVotes, self).digest))

    def made_again(self) -> bool:
        return bool(self._once("made again", lambda: super(NodeVotes, self).made_again()))

    def certify(self, *, alpha: float = 0.001) -> Certificate:
        """The certificate of the node that is meant; refused without one, since there is a certificate per node.

        Args:
            alpha: Failure probability.
        """
        if self.graph.node is None:
            raise InputError("votes on nodes give a certificate per node (use certificates, or certify_nodes)")
        return self.certificates([self.graph.node], alpha=alpha)[0]

    def certificates(
        self, nodes: ArrayLike | Iterable[int] | None = None, *, alpha: float = 0.001, simultaneous: bool = False
    ) -> list[Certificate]:
        """The certificate of each node, in this order; by default of all. Attacks may strike anywhere in the graph.

        Args:
            nodes: Numbers of nodes.
            alpha: Failure probability of each certificate.
            simultaneous: Let alpha hold for all these nodes at once.
        """
        chosen = checked_nodes(nodes, self.graph.num_nodes)
        level = alpha / max(1, len(chosen)) if simultaneous else alpha
        readings = self._once(level, lambda: self._readings(level))
        certificates = []
        for votes in self.counts[chosen].tolist():
            alike = readings[tuple(sorted(votes)[-2:])]
            label = None if alike.label is None else int(np.argmax(votes))
            certificates.append(replace(alike, label=label, counts=tuple(votes), alpha=float(level), seed=self.seed))
        return certificates

    def _readings(self, level: float) -> dict[tuple[int, ...], Certificate]:
        """Certificates by the two largest numbers of votes, the smaller one first: they decide, and most nodes share them."""
        counts, graph = self.counts.astype(np.int64), self.graph
        leading, first = np.unique(np.sort(counts, axis=1)[:, -2:], axis=0, return_index=True)
        remaining, limits = self.remaining(level), (graph.max_adds, graph.max_removes)
        alike = vote_share.many_from_counts(counts[first], self.noise, alpha=remaining, limits=limits)
        if self.feature_noise is not None:
            alike = [with_features(certificate, certificate, graph, self.feature_noise) for certificate in alike]
        return dict(zip(map(tuple, leading.tolist()), alike, strict=True))


def checked_nodes(nodes: ArrayLike | Iterable[int] | None, num_nodes: int) -> IntArray:
    """Numbers of nodes, ``[k]``; all by default."""
    if nodes is None:
        return np.arange(num_nodes)
    chosen = np.asarray(nodes if isinstance(nodes, np.ndarray) or np.isscalar(nodes) else list(nodes))  # type: ignore[arg-type]
    if chosen.dtype == np.bool_ and chosen.shape == (num_nodes,):
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and chosen.size):
        raise InputError(
            f"nodes must be numbers of nodes, or a mask of {num_nodes} booleans; got {chosen.dtype} of shape {chosen.shape}"
        )
    outside = chosen[(chosen < 0) | (chosen >= num_nodes)]
    if len(outside):
        raise InputError(f"nodes must lie in 0..{num_nodes - 1}, the nodes of the graph; got {outside[0]}")
    return chosen.astype(np.int64)
