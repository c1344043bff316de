"""Labelled graphs as flat tensors, from which any batch is drawn at once, and the views of a batch that a step shows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from flipproof.checks import checked_count
from flipproof.errors import InputError
from flipproof.graphs import labelled_graphs
from flipproof.noise import EdgeNoise, FeatureNoise, keyed_draws, noisy_states
from flipproof.noise.feature_law import checked_feature_noise
from flipproof.noise.groups import EdgeGroups

_MOST_ENTRIES = 2**23  # of adjacency matrices at a time; larger batches are cut and their gradients added up
_PIECE = 2**15  # entries whose work equals what another piece of a batch costs, as measured
_WINDOW = 16  # batches that are sorted by size together, so that little is padded


class Padded(NamedTuple):
    """A batch of clean graphs, padded to the largest."""

    adjacency: Tensor  # [B, n, n]
    mask: Tensor  # nodes that exist [B, n]
    frozen: Tensor | None  # pairs that never flip, if any
    own: Tensor | None  # node features [B, n, d], if any
    labels: Tensor  # [B]

    def free(self) -> Tensor:
        """Pairs that noise or an attacker can flip, symmetric bool ``[B, n, n]``."""
        inside = self.mask.unsqueeze(2) & self.mask.unsqueeze(1) & ~torch.eye(self.mask.shape[1], dtype=torch.bool)
        return inside if self.frozen is None else inside & ~self.frozen


class LabelledGraphs:
    """Graphs, their labels and features, one after the other in flat tensors; ``argument`` names them in messages."""

    def __init__(self, graphs: Iterable[Any], argument: str) -> None:
        members = labelled_graphs(graphs, argument)
        widths = {None if graph.node_features is None else graph.node_features.shape[1] for graph in members}
        if len(widths) > 1:
            raise InputError(
                f"{argument} must all have equally many node features; got {sorted(width or 0 for width in widths)} "
                "(give every graph the same columns)"
            )
        self.labels = torch.tensor([graph.label for graph in members])
        self.sizes = torch.tensor([graph.num_nodes for graph in members])
        self._edges = _Pairs([graph.edges for graph in members])
        self._frozen = _Pairs([graph.frozen for graph in members]) if any(len(g.frozen) for g in members) else None
        self.num_edges = self._edges.counts
        own = [torch.tensor(graph.node_features) for graph in members if graph.node_features is not None]
        self._own = [part.float() if part.dtype == torch.float64 else part for part in own]

    def __len__(self) -> int:
        return len(self.labels)

    def cut(self, members: Tensor, copies: int, *, by_size: bool = False) -> Iterator[Tensor]:
        """The batch in pieces whose matrices fit into memory; ``by_size`` also parts large graphs from small ones, where that
        saves more padding than another piece costs."""
        for part in _parted(members, self.sizes[members]) if by_size else [members]:
            entries = copies * int(self.sizes[part].max()) ** 2
            yield from torch.split(part, max(1, _MOST_ENTRIES // entries))

    def padded(self, members: Tensor) -> Padded:
        sizes = self.sizes[members]
        n = int(sizes.max())
        frozen = None if self._frozen is None else self._frozen.matrices(members, n) > 0
        own = pad_sequence([self._own[index] for index in members.tolist()], batch_first=True) if self._own else None
        mask = torch.arange(n) < sizes.unsqueeze(1)
        return Padded(self._edges.matrices(members, n), mask, frozen, own, self.labels[members])


def _parted(members: Tensor, sizes: Tensor) -> list[Tensor]:
    """The members parted by size, largest first, for as long as a cut saves more entries than a piece costs."""
    order = sizes.argsort(descending=True, stable=True)
    parts, rest, squares = [], members[order], sizes[order] ** 2
    while len(rest) > 1:
        # the first k are padded to the largest, the others to the largest of them
        first = torch.arange(1, len(rest))
        saved = (len(rest) - first) * (squares[0] - squares[1:])
        best = int(saved.argmax())
        if int(saved[best]) <= _PIECE:
            break
        parts.append(rest[: best + 1])
        rest, squares = rest[best + 1 :], squares[best + 1 :]
    return [*parts, rest]


def shuffled(sizes: Tensor, batch_size: int, *, seed: int, epoch: int) -> Iterator[Tensor]:
    """All members once, in batches of random members of similar size; a pure function of its arguments."""
    order = _permutation("order", seed, epoch, len(sizes))
    if int(sizes.min()) < int(sizes.max()) and len(sizes) > 2 * batch_size:
        windows = torch.split(order, _WINDOW * batch_size)
        order = torch.cat([part[sizes[part].argsort(stable=True)] for part in windows])
    batches = torch.split(order, batch_size)
    for index in _permutation("order of batches", seed, epoch, len(batches)).tolist():
        yield batches[index]


def _permutation(purpose: str, seed: int, epoch: int, count: int) -> Tensor:
    return torch.from_numpy(np.argsort(keyed_draws(f"training {purpose}", seed, epoch, (count,)), kind="stable"))


class Parts:
    """How rows of many graphs, one after the other, are divided among them."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = torch.tensor(counts)
        self.starts = torch.cumsum(self.counts, 0) - self.counts

    def starts_of(self, members: Tensor) -> Tensor:
        """Where the rows of each member start in the batch of the members alone."""
        counts = self.counts[members]
        return torch.cumsum(counts, 0) - counts

    def select(self, members: Tensor) -> tuple[Tensor, Tensor]:
        """Places of the members' rows, and for each the number of its graph in the batch."""
        owner = torch.repeat_interleave(torch.arange(len(members)), self.counts[members])
        return torch.arange(len(owner)) + (self.starts[members] - self.starts_of(members))[owner], owner


class _Pairs(Parts):
    """Node pairs of many graphs, one after the other."""

    def __init__(self, parts: list[NDArray[Any]]) -> None:
        super().__init__([len(part) for part in parts])
        self.rows = torch.from_numpy(np.concatenate(parts))

    def matrices(self, members: Tensor, n: int) -> Tensor:
        """Symmetric 0/1 matrices of the members, float32 ``[B, n, n]``."""
        places, owner = self.select(members)
        u, v = self.rows[places].T
        matrices = torch.zeros(len(members), n, n)
        matrices[owner, u, v] = matrices[owner, v, u] = 1
        return matrices


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash of named tensors: the same only for the same names, shapes, types and values."""
    hashed = hashlib.sha256()
    for name, value in tensors.items():
        hashed.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        hashed.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return hashed.hexdigest()


# the randomness of a step: uniform 32-bit integers for a purpose, in the shape wanted; the same call gives the same ones
Draws = Callable[[str, tuple[int, ...]], NDArray[np.uint32]]
_VALIDATION_COPIES = 8


class Shown(NamedTuple):
    """A batch as the model sees it, copy by copy: all graphs, then all again."""

    adjacency: Tensor  # float32 [copies * B, n, n]
    own: Tensor | None  # the graphs' own node features [copies * B, n, d], if any
    pairs: Tensor | None = None  # those in sight, bool [copies * B, n, n]; by default all


class View:
    """How a batch of graphs is shown to the model: here as it is."""

    noisy = False  # whether copies of a graph are independent noisy versions of it

    def show(self, batch: Padded, copies: int, draws: Draws, *, validation: bool = False) -> Shown:
        """What a training step, or validation, sees of a batch; a pure function of its arguments."""
        own = None if batch.own is None else batch.own.repeat(copies, 1, 1)
        return Shown(batch.adjacency.repeat(copies, 1, 1), own)

    def validation_copies(self, copies: int) -> int:
        return 1

    def description(self) -> dict[str, Any]:
        """Plain JSON: only a training with the same view continues from a checkpoint."""
        return {}


class Noisy(View):
    """Graphs under edge noise, fresh in every step; frozen pairs are left alone. Features may be under noise, too."""

    noisy = True

    def __init__(self, noise: EdgeNoise, feature_noise: FeatureNoise | None = None) -> None:
        if not isinstance(noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise or None; got {noise!r} (for instance EdgeNoise(keep=0.9))")
        self.noise, self.feature_noise = noise, checked_feature_noise(feature_noise)

    def show(self, batch: Padded, copies: int, draws: Draws, *, validation: bool = False) -> Shown:
        size, n = batch.mask.shape
        upper, column_of_entry = _triangle(n)
        states, free = ((part.view(size, -1)[:, upper] > 0).numpy() for part in (batch.adjacency, batch.free()))
        noisy = np.where(free, noisy_states(states, draws("noise", (copies, *states.shape)), self.noise), states)
        columns = torch.zeros(copies * size, len(upper) + 1)  # the last one is the diagonal's
        columns[:, :-1] = torch.from_numpy(noisy).view(copies * size, -1)
        own = None if batch.own is None else batch.own.repeat(copies, 1, 1)
        if own is not None and self.feature_noise is not None:
            rows = self.feature_noise.drawn(own.numpy(), lambda shape: draws("features", shape))
            own = torch.from_numpy(rows) * batch.mask.repeat(copies, 1).unsqueeze(2)
        return Shown(columns[:, column_of_entry].view(-1, n, n), own)

    def validation_copies(self, copies: int) -> int:
        return max(_VALIDATION_COPIES, copies)

    def description(self) -> dict[str, Any]:
        of_features = {} if self.feature_noise is None else {"feature_noise": self.feature_noise.plain()}
        return {"noise": [self.noise.add_threshold, self.noise.remove_threshold], **of_features}


class SubGraphs(View):
    """One hashed sub-graph per copy, of a random group, with the features of a random feature group; validation sees all."""

    def __init__(self, groups: int | EdgeGroups, *, renumber: bool = False, feature_groups: int = 1) -> None:
        self.groups = groups if isinstance(groups, EdgeGroups) else EdgeGroups(groups)
        self.feature_groups = checked_count(feature_groups, "feature_groups", 1, "for instance 3")
        self.renumber = bool(renumber)

    def show(self, batch: Padded, copies: int, draws: Draws, *, validation: bool = False) -> Shown:
        size, n = batch.mask.shape
        group_of_pair = self._groups_of_pairs(n)
        group_of_node = torch.from_numpy(self.groups.of_nodes(n, self.feature_groups))
        if validation:
            number = torch.arange(copies).view(-1, 1, 1)
            group, feature_group = number % self.groups.count, number // self.groups.count
        else:
            group = _random_groups("group", self.groups.count, copies, size, draws)
            feature_group = _random_groups("feature group", self.feature_groups, copies, size, draws)
            if self.renumber:
                number = _random_numbers(batch, copies, draws)
                group_of_pair = group_of_pair[number.unsqueeze(3), number.unsqueeze(2)]
                group_of_node = group_of_node[number]
        kept = group_of_pair == group.unsqueeze(3)  # [copies, B, n, n]; in validation [copies, 1, n, n]
        present = batch.adjacency * (kept if batch.frozen is None else kept | batch.frozen)
        shown = (group_of_node == feature_group).unsqueeze(3)
        own = None if batch.own is None else (batch.own * shown).flatten(0, 1)
        return Shown(present.flatten(0, 1), own, kept.expand(copies, size, n, n).flatten(0, 1))

    def validation_copies(self, copies: int) -> int:
        return self.groups.count * self.feature_groups

    def description(self) -> dict[str, Any]:
        crossed = {"feature_groups": self.feature_groups} if self.feature_groups > 1 else {}
        return {"groups": self.groups.count, "hash_key": self.groups.key, "renumber": self.renumber} | crossed

    def _groups_of_pairs(self, num_nodes: int) -> Tensor:
        """The group of every node pair, symmetric ``[n, n]``; what the diagonal holds means nothing."""
        pairs = np.indices((num_nodes, num_nodes)).reshape(2, -1).T
        return torch.from_numpy(self.groups.of_pairs(pairs)).to(torch.int32).view(num_nodes, num_nodes)


def _random_groups(purpose: str, count: int, copies: int, size: int, draws: Draws) -> Tensor:
    """One of ``count`` groups for each graph of each copy, ``[copies, B, 1]``."""
    words = draws(purpose, (copies, size)).astype(np.uint64)
    return torch.from_numpy(((words * np.uint64(count)) >> np.uint64(32)).astype(np.int64)).unsqueeze(2)


def _random_numbers(batch: Padded, copies: int, draws: Draws) -> Tensor:
    """Random numbers of each graph's own nodes, padding last, ``[copies, B, n]``."""
    keys = torch.from_numpy(draws("numbering", (copies, *batch.mask.shape)).astype(np.int64))
    return (keys + (~batch.mask).long() * 2**32).argsort(dim=2, stable=True).argsort(dim=2)


@lru_cache(maxsize=16)
def _triangle(num_nodes: int) -> tuple[Tensor, Tensor]:
    """Flat places of the pairs ``u < v`` in a matrix, and for each of its entries the pair's number (the last, for none)."""
    u, v = torch.triu_indices(num_nodes, num_nodes, 1)
    number = torch.full((num_nodes, num_nodes), len(u))
    number[u, v] = number[v, u] = torch.arange(len(u))
    return u * num_nodes + v, number.flatten()
