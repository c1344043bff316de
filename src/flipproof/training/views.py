"""What a training graph looks like in a step: as it is, under noise, or as one of its hashed sub-graphs.

A view makes the adjacency matrices of a batch, several copies of every graph if asked for. It has no state: its randomness
is that of the step, handed to it as a function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.errors import InputError
from flipproof.noise import EdgeNoise, noisy_states
from flipproof.noise.groups import EdgeGroups
from flipproof.training.batches import Padded

__all__ = ["Clean", "Draws", "Noisy", "SubGraphs", "View", "as_view"]

Draws = Callable[[str, tuple[int, ...]], NDArray[np.uint32]]
"""The randomness of a step: uniform 32-bit integers for a purpose, in the shape wanted. The same call gives the same ones."""

_VALIDATION_COPIES = 8


class View(ABC):
    """How a batch of graphs is shown to the model. Copies are ordered copy by copy: all graphs, then all graphs again."""

    noisy: bool = False
    """Whether copies of a graph are independent noisy versions of it."""

    @abstractmethod
    def adjacency(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        """The matrices of a training step, float32 ``[copies * B, n, n]``."""

    def validation_adjacency(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        """The matrices that validation sees, float32 ``[copies * B, n, n]``."""
        return self.adjacency(batch, copies, draws)

    @abstractmethod
    def validation_copies(self, copies: int) -> int:
        """The number of copies of a validation graph where training sees ``copies``."""

    def room(self, batch: Padded, copies: int, draws: Draws, *, validation: bool = False) -> Tensor:
        """Pairs that an attacker could flip in each of the matrices, symmetric bool ``[copies * B, n, n]``."""
        inside = batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1) & ~torch.eye(batch.mask.shape[1], dtype=torch.bool)
        if batch.frozen is not None:
            inside = inside & ~batch.frozen
        return inside.repeat(copies, 1, 1)

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Plain JSON: only a training with the same view continues from a checkpoint."""


class Clean(View):
    """Graphs as they are."""

    def adjacency(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        return batch.adjacency.repeat(copies, 1, 1)

    def validation_copies(self, copies: int) -> int:
        return 1

    def description(self) -> dict[str, Any]:
        return {}


class Noisy(View):
    """Graphs under edge noise, fresh in every step; frozen pairs are left alone."""

    noisy = True

    def __init__(self, noise: EdgeNoise) -> None:
        if not isinstance(noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise or None; got {noise!r} (for instance EdgeNoise(keep=0.9))")
        self.noise = noise

    def adjacency(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        size, n = batch.mask.shape
        upper, column_of_entry = _triangle(n)
        states = batch.adjacency.view(size, -1)[:, upper].numpy() > 0
        noisy = noisy_states(states, draws("noise", (copies, *states.shape)), self.noise)
        fixed = ~(batch.mask.unsqueeze(2) & batch.mask.unsqueeze(1))
        if batch.frozen is not None:
            fixed |= batch.frozen
        noisy = np.where(fixed.view(size, -1)[:, upper].numpy(), states, noisy)
        columns = torch.zeros(copies * size, len(upper) + 1)  # the last one is the diagonal's
        columns[:, :-1] = torch.from_numpy(noisy).view(copies * size, -1)
        return columns[:, column_of_entry].view(-1, n, n)

    def validation_copies(self, copies: int) -> int:
        return max(_VALIDATION_COPIES, copies)

    def description(self) -> dict[str, Any]:
        return {"noise": [self.noise.add_threshold, self.noise.remove_threshold]}


class SubGraphs(View):
    """One hashed sub-graph per copy, of a random group; validation sees all of them.

    Args:
        groups: Number of groups, or the groups themselves.
        renumber: Number the nodes of every training graph at random before they are hashed, afresh in every step.
    """

    def __init__(self, groups: int | EdgeGroups, *, renumber: bool = False) -> None:
        self.groups = groups if isinstance(groups, EdgeGroups) else EdgeGroups(groups)
        self.renumber = bool(renumber)
        self._group_of = torch.zeros(0, 0, dtype=torch.int32)

    def adjacency(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        return _sub_graphs(batch, self._kept(batch, copies, draws))

    def validation_adjacency(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        return _sub_graphs(batch, self._every_group(batch, copies))

    def room(self, batch: Padded, copies: int, draws: Draws, *, validation: bool = False) -> Tensor:
        kept = self._every_group(batch, copies) if validation else self._kept(batch, copies, draws)
        inside = super().room(batch, 1, draws)
        return (kept & inside).flatten(0, 1)

    def _kept(self, batch: Padded, copies: int, draws: Draws) -> Tensor:
        """The pairs of a random group of each copy, ``[copies, B, n, n]``; the same for the same draws."""
        size, n = batch.mask.shape
        words = draws("group", (copies, size)).astype(np.uint64)
        group = torch.from_numpy(((words * np.uint64(self.groups.count)) >> np.uint64(32)).astype(np.int64))
        group_of = self._groups_of_pairs(n)
        if self.renumber:
            # random keys, padding last: their order is a random numbering of each graph's own nodes
            keys = (
                torch.from_numpy(draws("numbering", (copies, size, n)).astype(np.int64)) + (~batch.mask).long() * 2**32
            )
            number = keys.argsort(dim=2, stable=True).argsort(dim=2)
            group_of = group_of[number.unsqueeze(3), number.unsqueeze(2)]
        return group_of == group.view(copies, size, 1, 1)

    def _every_group(self, batch: Padded, copies: int) -> Tensor:
        """The pairs of each group, ``[copies, 1, n, n]``."""
        return self._groups_of_pairs(batch.mask.shape[1]) == torch.arange(copies).view(-1, 1, 1, 1)

    def validation_copies(self, copies: int) -> int:
        return self.groups.count

    def description(self) -> dict[str, Any]:
        return {"groups": self.groups.count, "hash_key": self.groups.key, "renumber": self.renumber}

    def _groups_of_pairs(self, num_nodes: int) -> Tensor:
        """The group of every node pair, symmetric ``[n, n]``; it does not depend on the graph."""
        if len(self._group_of) < num_nodes:
            u, v = np.triu_indices(num_nodes, 1)
            found = torch.from_numpy(self.groups.of_pairs(np.stack([u, v], axis=1))).to(torch.int32)
            self._group_of = torch.zeros(num_nodes, num_nodes, dtype=torch.int32)
            self._group_of[u, v] = self._group_of[v, u] = found
        return self._group_of[:num_nodes, :num_nodes]


def as_view(noise: EdgeNoise | None, groups: int | EdgeGroups | None, *, renumber: bool) -> View:
    """The view that the arguments of :func:`flipproof.train` ask for."""
    if noise is not None and groups is not None:
        raise InputError(f"give either noise, for smoothing, or groups, for voting; got {noise} and groups={groups}")
    if groups is not None:
        return SubGraphs(groups, renumber=renumber)
    if renumber:
        raise InputError("renumber is about the hash of node numbers; got no groups (pass groups=3 or the like)")
    return Clean() if noise is None else Noisy(noise)


def _sub_graphs(batch: Padded, kept: Tensor) -> Tensor:
    """The edges of the batch that are kept ``[copies, B, n, n]`` (or ``[copies, 1, n, n]``), and every frozen edge."""
    if batch.frozen is not None:
        kept = kept | batch.frozen
    return (batch.adjacency * kept).flatten(0, 1)


@lru_cache(maxsize=16)
def _triangle(num_nodes: int) -> tuple[Tensor, Tensor]:
    """Flat places of the pairs ``u < v`` in a matrix, and for each of its entries the pair's number (the last, for none)."""
    u, v = torch.triu_indices(num_nodes, num_nodes, 1)
    number = torch.full((num_nodes, num_nodes), len(u))
    number[u, v] = number[v, u] = torch.arange(len(u))
    return u * num_nodes + v, number.flatten()
