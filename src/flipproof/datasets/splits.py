"""Stratified splits of a data set, and how many test graphs training has seen already."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.checks import checked_integer, checked_seed
from flipproof.datasets.dataset import Dataset, fingerprint
from flipproof.errors import InputError
from flipproof.files import write_json
from flipproof.graphs import Graph, IntArray, as_graphs

_ROUNDS = 4  # of Weisfeiler and Lehman's colours
FOLDS = 10


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in parts that share no graph (but may hold isomorphic ones); positions in the whole are ascending."""

    dataset: Dataset
    train_indices: IntArray
    validation_indices: IntArray
    test_indices: IntArray
    seed: int

    def __repr__(self) -> str:
        train, validation, test = map(len, (self.train_indices, self.validation_indices, self.test_indices))
        return f"Split(train={train}, validation={validation}, test={test}, seed={self.seed})"

    @cached_property
    def train(self) -> Dataset:
        """The graphs to train on."""
        return self.dataset.subset(self.train_indices)

    @cached_property
    def validation(self) -> Dataset:
        """The graphs that choose epoch and settings; empty unless asked for."""
        return self.dataset.subset(self.validation_indices)

    @cached_property
    def test(self) -> Dataset:
        """The graphs to certify."""
        return self.dataset.subset(self.test_indices)

    def describe(self) -> str:
        """Sizes of the parts, and how many test graphs are a training graph with its nodes renumbered."""
        validation = f"{len(self.validation)} validation, " if len(self.validation) else ""
        return (
            f"{len(self.train)} training, {validation}{len(self.test)} test graphs (seed {self.seed}); "
            f"{int(isomorphic_to_any(self.test, self.train).sum())} of {len(self.test)} test graphs are isomorphic to a training "
            "graph"
        )


def split(
    graphs: Dataset | Iterable[Any],
    *,
    train: int | float | None = None,
    test: int | float | None = None,
    validation: int | float = 0,
    seed: int = 0,
) -> Split:
    """Split at random, with every class in the same proportion in all parts (as nearly as whole graphs allow).

    Args:
        graphs: A data set, or labelled graphs.
        train, test, validation: Number of graphs (an integer) or share of all (a fraction in (0, 1)). By default there is
            no validation part and training gets two thirds, as in the paper: 320 of 480. With one of ``train`` and
            ``test`` given, the other gets what remains; with both, the rest is left out. ``test=0`` keeps no graph for the end.
        seed: The same seed gives the same split.

    >>> from flipproof.datasets import topologies
    >>> split(topologies(480), test=0.25, validation=0.1)
    Split(train=312, validation=48, test=120, seed=0)
    """
    data, seed = _as_dataset(graphs), checked_seed(seed)
    total, held = len(data), _number(validation, len(data), "validation")
    train_size = None if train is None else _number(train, total, "train")
    test_size = None if test is None else _number(test, total, "test")
    if train_size is None:
        train_size = round((total - held) * 2 / 3) if test_size is None else total - held - test_size
    if test_size is None:
        test_size = total - held - train_size
    if train_size < 1 or (test_size < 1 and not (test_size == test == 0)) or train_size + test_size + held > total:
        raise InputError(
            f"train, validation and test must fit into {total} graphs with at least one training and one test graph; "
            f"got {train_size} + {held} + {test_size} (ask for fewer)"
        )
    order = _stratified_order(data, seed)
    # every stretch of the order has the classes in proportion, so parts are stretches
    bounds = np.cumsum([0, train_size, held, test_size])
    parts = [np.sort(order[start:stop]) for start, stop in pairwise(bounds)]
    return Split(data, parts[0], parts[1], parts[2], seed)


def drawn(graphs: Dataset, count: int, *, seed: int = 0) -> IntArray:
    """Positions of ``count`` graphs, ascending, drawn at random with every class in proportion; all, if there are no more."""
    return np.sort(_stratified_order(graphs, checked_seed(seed))[:count])


def folds(graphs: Dataset | Iterable[Any], *, number: int = 10, validation: bool = False, seed: int = 0) -> list[Split]:
    """Stratified k-fold cross-validation: every graph is a test graph once.

    Args:
        graphs: A data set, or labelled graphs.
        number: Number of folds, at least 2 (3 with validation).
        validation: Hold the next fold out of training as well, for choosing epoch and settings.
        seed: The same seed gives the same folds.

    >>> from flipproof.datasets import topologies
    >>> folds(topologies(80), number=5)[0]
    Split(train=64, validation=0, test=16, seed=0)
    """
    data, seed = _as_dataset(graphs), checked_seed(seed)
    fewest = 3 if validation else 2
    number = checked_integer(number, "number", fewest, len(data), "at most one fold per graph; for instance 10")
    bounds = np.linspace(0, len(data), number + 1).round()[1:]
    fold_of = np.empty(len(data), dtype=np.int64)
    fold_of[_stratified_order(data, seed)] = np.searchsorted(bounds, np.arange(len(data)), side="right")
    return _splits(data, fold_of, number, validation, seed)


def _splits(data: Dataset, fold_of: IntArray, number: int, validation: bool, seed: int) -> list[Split]:
    """Fold ``k`` is tested, fold ``k + 1`` (after the last comes the first) held out for validation if wanted."""
    splits = []
    for fold in range(number):
        test, held = fold_of == fold, (fold_of == (fold + 1) % number) & validation
        parts = [np.flatnonzero(members) for members in (~test & ~held, held, test)]
        splits.append(Split(data, parts[0], parts[1], parts[2], seed))
    return splits


def write_folds(path: Path, data: Dataset, *, seed: int = 0) -> None:
    """Write ten stratified folds of a data set: a digit per graph, the fold in which it is tested."""
    if len(data) < FOLDS:
        raise InputError(f"ten folds need at least ten graphs; got {len(data)} (use more graphs)")
    tested = [part.test_indices for part in folds(data, number=FOLDS, seed=seed)]
    digits = np.repeat(np.arange(FOLDS), list(map(len, tested)))[np.argsort(np.concatenate(tested))]
    content = {"data": data.name, "graphs": len(data), "data_sha256": fingerprint(data), "seed": seed}
    write_json(path, content | {"folds": "".join(map(str, digits))})


def read_folds(path: Path, data: Dataset) -> list[Split]:
    """The ten splits that a file describes; refuses a file of other graphs."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        digits = np.array([int(digit) for digit in content["folds"]])
        seed = int(content["seed"])
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror} (give the folder of the fold files)") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a file of folds: {error} (compare benchmarks/splits)") from error
    if len(digits) != len(data) or content.get("data_sha256") != fingerprint(data):
        raise InputError(
            f"{path} belongs to other graphs than these {len(data)} of {data.name} (use the same files and the same data seed)"
        )
    missing = set(range(FOLDS)) - set(digits.tolist())
    if missing:
        raise InputError(f"{path}: fold {min(missing)} has an empty part (write the file again)")
    return _splits(data, digits, FOLDS, True, seed)


def isomorphic_to_any(graphs: Sequence[Any], others: Sequence[Any]) -> NDArray[np.bool_]:
    """For each of ``graphs``, whether one of ``others`` is the same graph with its nodes renumbered, node features included.

    >>> square, path = Graph(4, [(0, 1), (1, 2), (2, 3), (0, 3)]), Graph(4, [(0, 1), (1, 2), (2, 3)])
    >>> isomorphic_to_any([square, path], [Graph(4, [(0, 2), (2, 1), (1, 3), (3, 0)])]).tolist()
    [True, False]
    """
    known = as_graphs(others)
    return isomorphism_groups([*known, *as_graphs(graphs)])[len(known) :] < len(known)


def isomorphism_groups(graphs: Sequence[Graph]) -> IntArray:
    """For each graph the position of the first graph that it is isomorphic to, node features included, ``[len(graphs)]``."""
    import networkx

    firsts, first = dict[tuple[str, ...], list[tuple[int, Any]]](), np.arange(len(graphs))
    for place, graph in enumerate(graphs):
        coloured = graph.replaced(node_features=None).to_networkx()
        rows = [b""] * graph.num_nodes if graph.node_features is None else graph.node_features
        networkx.set_node_attributes(coloured, {node: bytes(row).hex() for node, row in enumerate(rows)}, "colour")
        # colours of surroundings sort out most pairs; what is left is decided exactly
        hashes = networkx.weisfeiler_lehman_subgraph_hashes(coloured, node_attr="colour", iterations=_ROUNDS)
        networkx.set_node_attributes(coloured, {node: rounds[-1] for node, rounds in hashes.items()}, "colour")
        earlier = firsts.setdefault(tuple(sorted(rounds[-1] for rounds in hashes.values())), [])
        for position, other in earlier:
            if networkx.vf2pp_is_isomorphic(coloured, other, node_label="colour"):
                first[place] = position
                break
        else:
            earlier.append((place, coloured))
    return first


def _as_dataset(graphs: Dataset | Iterable[Any]) -> Dataset:
    data = graphs if isinstance(graphs, Dataset) else Dataset(graphs)
    if len(data) < 2:
        raise InputError(f"a split needs at least two graphs; got {len(data)} (pass the whole data set)")
    return data


def _number(value: Any, total: int, argument: str) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 0:
        return int(value)
    if isinstance(value, (float, np.floating)) and 0 <= value < 1:
        return round(float(value) * total)
    raise InputError(
        f"{argument} must be a number of graphs or a share of them in (0, 1); got {value!r} (for instance 160, or 0.33)"
    )


def _stratified_order(data: Dataset, seed: int) -> IntArray:
    """A random order in which every stretch holds the classes in proportion: each is spread evenly over the whole."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 2])))
    order = generator.permutation(len(data))
    place = np.empty(len(data))
    for label in np.unique(data.labels):
        members = order[data.labels[order] == label]
        place[members] = (np.arange(len(members)) + generator.random()) / len(members)
    return order[np.argsort(place[order], kind="stable")]
