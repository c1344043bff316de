"""Node features that know the clean edges: no noise reaches them, and every certificate would be false.

A column is refused if a structural quantity of the clean graph (degree, triangles, PageRank, ...) predicts it almost perfectly
over all the graphs:

- *few values*: the column is a function of the quantity, but for a few exceptions;
- *many values*: the quantity explains nearly all of its variance or of its ranks, or the column sorts the degrees;
- *eigenvectors* of the adjacency or Laplacian matrix, *sums over neighbours* of another column, *rows* of the adjacency matrix.

Quantities are those that powers of the adjacency matrix tell; closeness and betweenness, say, are not looked for.

Accidents are told apart by counting: a random arrangement of the column's values must show the agreement with a probability below
one in a million, after paying for the function, its exceptions and the number of things tried. Atom types go along with degrees
without being a function of them, and pass; so does a quantity of the clean edges that is not listed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln
from scipy.stats import rankdata

from flipproof.errors import InputError
from flipproof.graphs import Graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Suspect = tuple[int | None, str] | None

_COUNTS = 3  # the first quantities have few values; a finer one tells surroundings apart, and atom types nearly follow from them
_VALENCE = 6  # degrees of atoms; graphs with larger ones are no molecules
_EVIDENCE = float(np.log(1e6))
_NODES = 20_000  # on which quantities are compared; beyond that, graphs are sampled
_WIDEST = 256  # columns that are tried as sources of neighbour sums
_EXCEPTIONS = 0.01  # share of the nodes
_OF_MINORITY = 0.1  # share of the nodes that do not have the most frequent value
_EXPLAINED = 0.98  # share of the variance
_FEW = 3  # values of a column that is judged as categories only
_GRAPHS = 20  # from which a column of two values is judged: on a few molecules an atom type follows the valence
_HOLDERS = 5  # molecules that must hold the rarer of two values
_EIGEN = 1e-3  # relative residual of an eigenvector


def refuse_clean_edges(graphs: Sequence[Graph], names: Sequence[str] = ()) -> None:
    """Refuse graphs whose own features are computed from their edges.

    A column is judged on *all* the graphs: a node label that happens to agree on a small graph passes together with graphs on
    which it does not. ``names`` are those of the columns, where they have any.
    """
    widths = [0 if graph.node_features is None else graph.node_features.shape[1] for graph in graphs]
    for width in dict.fromkeys(filter(None, widths)):
        same = graphs if len(set(widths)) == 1 else None  # graphs of a large data set are not all built at once
        alike = same or [graph for graph, own in zip(graphs, widths, strict=True) if own == width]
        if (suspect := _suspect(alike)) is None:
            continue
        column, what = suspect
        shown = f" ({names[column]})" if column is not None and column < len(names) else ""
        where = "node_features are" if column is None else f"column {column} of node_features{shown} is"
        name = f" of graph {alike[0].name!r}" if len(alike) == 1 and alike[0].name is not None else ""
        raise InputError(
            f"{where} {what}{name}: computed on the clean graph, they would survive the noise and every certificate would be "
            'false (leave them out and pass features="degree", "one-hot-degree" or a function, which are computed on each noisy '
            "graph; trust_features=True if they only look like that)"
        )


def _suspect(graphs: Sequence[Graph]) -> Suspect:
    """The first column that knows the edges, and what it is; no number for a block of columns."""
    if max(graph.num_nodes for graph in graphs) < 4 or not any(graph.num_edges for graph in graphs):
        return None  # too little to tell
    nodes = _Nodes(graphs[:: -(-sum(graph.num_nodes for graph in graphs) // _NODES)])
    searches = (_degrees, _one_hot_degrees, _quantities, _eigenvectors, _neighbour_sums, _adjacency_rows)
    return next(filter(None, (search(nodes) for search in searches)), None)


class _Nodes:
    """The nodes of all graphs as one union: their columns, and their edges."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = graphs
        self.sizes = np.array([graph.num_nodes for graph in graphs])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.owner = np.repeat(np.arange(len(graphs)), self.sizes)
        features = [graph.node_features for graph in graphs if graph.node_features is not None]
        self.columns: Floats = np.concatenate(features).astype(np.float64).T
        self.degrees: Ints = np.concatenate([graph.degrees for graph in graphs])
        self.varying = np.flatnonzero(self.differ(self.columns).any(axis=1))
        """Columns that differ between nodes of one graph."""

    def __len__(self) -> int:
        return len(self.owner)

    def too_few(self, codes: Ints) -> bool:
        """Whether these could be so few molecules that an atom type, one of two, follows the valence by accident.

        One odd molecule is one accident, however many of its atoms take part in it.
        """
        rarer = codes == np.bincount(codes, minlength=2).argmin()
        few = len(self.sizes) < _GRAPHS or len(np.unique(self.owner[rarer])) < _HOLDERS
        return bool(codes.max() < 2 and few and self.degrees.max() <= _VALENCE)

    def sums(self, values: Floats) -> Floats:
        """Sums over every graph, ``[..., graphs]``."""
        return np.add.reduceat(values, self.starts, axis=-1)

    def differ(self, values: Floats) -> NDArray[np.bool_]:
        """Whether the values of a graph's nodes differ, ``[..., graphs]``; nodes without an edge are passed over."""
        joined = self.degrees > 0
        most = np.maximum.reduceat(np.where(joined, values, -np.inf), self.starts, axis=-1)
        least = np.minimum.reduceat(np.where(joined, values, np.inf), self.starts, axis=-1)
        return np.asarray(most - least > 1e-6 * (np.abs(values).max(axis=-1, keepdims=True) + 1e-300))

    def standardised(self, values: Floats) -> Floats:
        """Mean 0 and length 1 in every graph in which the values differ, 0 elsewhere."""
        centred = values - (self.sums(values) / self.sizes)[..., self.owner]
        length = np.sqrt(self.sums(centred**2))
        same = length < 1e-6 * np.sqrt(self.sums(values**2)) + 1e-300
        scaled: Floats = centred / np.where(same, np.inf, length)[..., self.owner]
        return scaled

    @cached_property
    def adjacency(self) -> Any:
        """Of the union, sparse."""
        edges = np.concatenate([graph.edges + start for graph, start in zip(self.graphs, self.starts, strict=True)])
        rows, columns = np.concatenate([edges, edges[:, ::-1]]).T
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(self), len(self)))

    @cached_property
    def walk(self) -> Any:
        """One step to a random neighbour."""
        return sparse.diags_array(1 / np.maximum(self.degrees, 1)) @ self.adjacency

    def threshold(self, tried: int) -> float:
        """The evidence that is needed when each column is compared with so many things."""
        return _EVIDENCE + float(np.log(max(1, len(self.varying)) * tried))


def _structure(nodes: _Nodes) -> list[tuple[str, Floats]]:
    """Named quantities of every node, all from powers of the adjacency matrix and of its random walk."""
    adjacency, walk = nodes.adjacency, nodes.walk
    degrees = nodes.degrees.astype(np.float64)
    steps = walk @ walk
    triangles = np.asarray((adjacency @ adjacency).multiply(adjacency).sum(axis=1)).ravel() / 2
    share = rank = 1 / nodes.sizes[nodes.owner]
    for _ in range(100):
        lost = nodes.sums(np.where(nodes.degrees == 0, rank, 0.0))[nodes.owner]
        rank = 0.85 * (walk.T @ rank + lost * share) + 0.15 * share
    return [
        ("the degree", degrees),
        ("the number of triangles", triangles),
        ("the clustering coefficient", triangles / np.maximum(1, degrees * (degrees - 1) / 2)),
        ("the PageRank", rank),
        ("a random walk's return probability in 2 steps", steps.diagonal()),
        ("a random walk's return probability in 3 steps", np.asarray(steps.multiply(walk.T).sum(axis=1)).ravel()),
        ("a random walk's return probability in 4 steps", np.asarray(steps.multiply(steps.T).sum(axis=1)).ravel()),
    ]


# ---- degrees, as they are usually written: also on a single small graph -----------------------------------------------------


def _degrees(nodes: _Nodes) -> Suspect:
    degrees = nodes.degrees.astype(np.float64)
    kinds, size = len(np.unique(degrees)), nodes.sizes[nodes.owner]
    if kinds < 2:
        return None
    total = nodes.sums(degrees)[nodes.owner]
    largest = np.maximum.reduceat(degrees, nodes.starts)[nodes.owner]
    inverse = np.divide(1, degrees, out=np.zeros_like(degrees), where=degrees > 0)
    forms = {
        "the degrees": degrees,
        "the degrees plus one": degrees + 1,
        "the degrees divided by n - 1": degrees / np.maximum(1, size - 1),
        "the degrees divided by n": degrees / size,
        "the degrees divided by the largest": degrees / np.maximum(1, largest),
        "the degrees divided by their sum": degrees / np.maximum(1, total),
        "the logarithms of the degrees plus one": np.log1p(degrees),
        "the inverse square roots of the degrees plus one": 1 / np.sqrt(degrees + 1),
        "the square roots of the degrees": np.sqrt(degrees),
        "the inverse square roots of the degrees": np.sqrt(inverse),
        "the inverses of the degrees plus one": 1 / (degrees + 1),
        "the inverses of the degrees": inverse,
    }
    for what, values in forms.items():
        equal = np.isclose(nodes.columns, values, rtol=1e-5, atol=1e-6).all(axis=1)
        # a column of zeros and ones agrees by accident too easily
        if equal.any() and not set(np.unique(values)) <= {0.0, 1.0}:
            return int(np.argmax(equal)), what
    if kinds < 3:
        return None
    forms["the degrees, standardised"] = nodes.standardised(degrees) * np.sqrt(size)
    for ties in ("average", "min"):
        ranks = rankdata(nodes.owner * len(nodes) + nodes.degrees, ties) - nodes.starts[nodes.owner]
        forms[f"the ranks of the degrees (ties: {ties})"] = ranks
    return _affine(nodes, forms)


def _affine(nodes: _Nodes, forms: dict[str, Floats]) -> Suspect:
    """A column that is a form of the degrees, multiplied by a number and shifted, without exception."""
    columns = nodes.columns[nodes.varying]
    for what, form in forms.items():
        if len(np.unique(form)) < 3:
            continue
        for place in np.flatnonzero(_correlation(columns, form) ** 2 > 1 - 1e-6):
            values = columns[place]
            slope, constant = np.polyfit(form, values, 1)
            if abs(slope) > 1e-6 and np.allclose(values, slope * form + constant, rtol=1e-5, atol=1e-6):
                same = np.isclose(slope, 1, rtol=1e-4) and abs(constant) < 1e-4
                return int(nodes.varying[place]), what if same else f"{slope:g} times {what} plus {constant:g}"
    return None


def _one_hot_degrees(nodes: _Nodes) -> Suspect:
    """Neighbouring columns that hold the degree one-hot, beside any others.

    Atom types follow their valence, so that a one-to-one relation alone proves nothing: where few kinds could agree by accident,
    each must stand in its own place.
    """
    degrees = nodes.degrees
    codes = [(2, degrees), (4, np.unique(degrees, return_inverse=True)[1])]
    codes += [(3, np.minimum(degrees, cut)) for cut in range(2, int(degrees.max()))]
    for start, kinds in _one_hot_blocks(nodes):
        for least, code in codes:
            if len(np.unique(code)) >= least and np.ptp(kinds - code) == 0:
                others = np.delete(nodes.columns, np.s_[start : start + kinds.max() + 1], axis=0)
                return (start if others.any() else None), "the degrees, one-hot"
    return None


def _one_hot_blocks(nodes: _Nodes) -> list[tuple[int, Ints]]:
    """Neighbouring columns of which each node has exactly one: the first of them, and which one each node has."""
    binary = ((nodes.columns == 0) | (nodes.columns == 1)).all(axis=1)
    counts = np.where(binary, nodes.columns.sum(axis=1), np.inf)
    blocks = []
    for start in np.flatnonzero(binary & (counts > 0)).tolist():
        totals = np.cumsum(counts[start:])
        last = int(np.searchsorted(totals, len(nodes)))
        block = nodes.columns[start : start + last + 1]
        if last < len(totals) and totals[last] == len(nodes) and (block.sum(axis=0) == 1).all():
            blocks.append((start, block.argmax(axis=0).astype(np.int64)))
    return blocks


# ---- structural quantities ----------------------------------------------------------------------------------------------------


def _quantities(nodes: _Nodes) -> Suspect:
    """A column that one of the quantities predicts."""
    if not len(nodes.varying):
        return None
    columns = [_codes(nodes.columns[column]) for column in nodes.varying]
    quantities, blocks = _structure(nodes), _one_hot_blocks(nodes)
    needed = nodes.threshold(4 * len(quantities))
    many = [place for place, codes in enumerate(columns) if codes.max() >= _FEW]
    for number, (name, quantity) in enumerate(quantities):
        if np.ptp(quantity) == 0:
            continue
        group = _codes(quantity)
        # two kinds of nodes are too few: an atom and its hydrogens, or rings and what hangs on them
        if number < _COUNTS and group.max() > 1:
            for column, codes in zip(nodes.varying, columns, strict=True):
                if not nodes.too_few(codes) and _function_evidence(codes, group) > needed:
                    return int(column), f"a function of {name}"
            for start, kinds in blocks:
                codes = np.unique(kinds, return_inverse=True)[1]
                if codes.max() > 1 and _function_evidence(codes, group) > needed:
                    return start, f"the first of several that hold a function of {name}, one-hot"
        if many:
            counts = np.array([columns[place].max() + 1 for place in many])
            explained = _explained(nodes, nodes.columns[nodes.varying[many]], counts, quantity, needed)
            if explained is not None:
                return int(nodes.varying[many][explained[0]]), f"{explained[1]} {name}"
    return None


def _codes(values: Floats) -> Ints:
    """Numbers 0, 1, 2, ... in the order of the values; the same where they agree but for rounding."""
    scale = np.abs(values).max() or 1.0
    codes: Ints = np.unique(np.round(values / scale, 6), return_inverse=True)[1].astype(np.int64)
    return codes


def _function_evidence(column: Ints, quantity: Ints) -> float:
    """How surprising it is, in nats, that the column is a function of the quantity; -inf if it is none.

    The logarithm of the number of arrangements of the column's values, minus what it takes to write down the function and its
    exceptions.
    """
    values = int(column.max()) + 1
    frequent = np.bincount(column).max()
    cells, inside = np.unique(quantity * values + column, return_counts=True)
    kinds, start = np.unique(cells // values, return_index=True)
    wrong = int(len(column) - np.maximum.reduceat(inside, start).sum())
    if wrong > max(1, _EXCEPTIONS * len(column)) or wrong > _OF_MINORITY * (len(column) - frequent):
        return -np.inf
    function = len(kinds) * np.log(len(np.unique(column)))
    return _arrangements(column) - float(function + wrong * np.log(len(column) * values))


def _arrangements(column: Ints, owner: Any = 0) -> float:
    """The logarithm of the number of orders of the column's values, within every owner."""
    values, size = int(column.max()) + 1, np.ones(len(column), dtype=np.int64)
    counts = np.unique(owner * size * values + column, return_counts=True)[1]
    return float(gammaln(np.bincount(owner * size) + 1).sum() - gammaln(counts + 1).sum())


def _explained(nodes: _Nodes, values: Floats, counts: Ints, quantity: Floats, needed: float) -> tuple[int, str] | None:
    """A column (of so many different values) whose variance the quantity explains; and how, in words."""
    ranks = np.stack([rankdata(row) for row in values])
    # no order of so many values is more surprising than the last number, whatever the rank correlation
    for what, share, most in (
        ("an affine function of", _correlation(values, quantity) ** 2, np.inf),
        ("a monotone function of", _correlation(ranks, rankdata(quantity)) ** 2, gammaln(counts + 1)),
    ):
        evidence = np.minimum(_variance_evidence(share, counts, len(quantity) - 2), most)
        hits = np.flatnonzero((share >= _EXPLAINED) & (evidence > needed))
        if len(hits):
            return int(hits[0]), what
    if np.array_equal(quantity, nodes.degrees):
        sorting = (place for place, row in enumerate(values) if _sorts(row, nodes, needed))
        return next(((place, "in every graph in the order of") for place in sorting), None)
    return None


def _variance_evidence(share: Any, counts: Any, freedom: int) -> Any:
    """How surprising it is, in nats, that this share of a column's variance is explained; few values are worth little."""
    return -np.minimum(freedom, 3 * (counts - 2)) / 2 * np.log(np.maximum(1 - share, 1e-12))


def _correlation(rows: Floats, values: Floats) -> Floats:
    correlation: Floats = _unit(rows - rows.mean(axis=1, keepdims=True)) @ _unit((values - values.mean())[None])[0]
    return correlation


def _unit(rows: Floats) -> Floats:
    """Rows of length 1, or 0."""
    scaled: Floats = rows / np.maximum(np.sqrt((rows**2).sum(axis=1, keepdims=True)), 1e-300)
    return scaled


def _sorts(values: Floats, nodes: _Nodes, needed: float) -> bool:
    """Whether the order of the values puts the degrees of every graph in order: ranks, with ties broken somehow."""
    if len(np.unique(np.stack([nodes.owner, _codes(values)]), axis=1).T) < 0.9 * len(values):
        return False
    arrangements = _arrangements(nodes.degrees, nodes.owner)
    orders = (np.lexsort((direction * values, nodes.owner)) for direction in (1, -1))
    wrong = min(((np.diff(nodes.degrees[order]) < 0) & (np.diff(nodes.owner) == 0)).sum() for order in orders)
    return bool(wrong <= _EXCEPTIONS * len(values) and arrangements - wrong * np.log(len(values)) > needed)


# ---- matrices -----------------------------------------------------------------------------------------------------------------


def _eigenvectors(nodes: _Nodes) -> Suspect:
    """Positional encodings: columns that are, in nearly every graph, an eigenvector of a matrix of its edges."""
    if not len(nodes.varying):
        return None
    degrees = nodes.degrees.astype(np.float64)
    root = sparse.diags_array(1 / np.sqrt(np.maximum(degrees, 1)))
    matrices = {
        "adjacency matrix": nodes.adjacency,
        "Laplacian": sparse.diags_array(degrees) - nodes.adjacency,
        "normalised Laplacian": root @ nodes.adjacency @ root,
    }
    values = nodes.columns[nodes.varying]
    # of a complete graph, everything with mean 0 is an eigenvector
    complete = nodes.sums(degrees) == nodes.sizes * (nodes.sizes - 1)
    judged = nodes.differ(values) & ~complete
    lengths = np.maximum(nodes.sums(values**2), 1e-300)
    for name, matrix in matrices.items():
        images = (matrix @ values.T).T
        factor = nodes.sums(images * values) / lengths
        residual = nodes.sums((images - factor[:, nodes.owner] * values) ** 2) / lengths
        scale = np.maximum(1, np.abs(factor)) * _EIGEN
        hits = judged & (residual < scale**2)
        for place in np.flatnonzero((hits.sum(axis=1) >= 0.9 * judged.sum(axis=1)) & hits.any(axis=1)):
            codes = _codes(values[place])
            # what is the same within every part of a graph is an eigenvector by accident
            one, other = nodes.adjacency.nonzero()
            crossed = np.bincount(nodes.owner[one], codes[one] != codes[other], minlength=len(nodes.sizes)) > 0
            kept = (hits[place] & crossed)[nodes.owner]
            if not kept.any():
                continue
            owner = nodes.owner[kept]
            distinct = np.bincount(np.unique(np.stack([owner, codes[kept]]), axis=1)[0])
            evidence = _arrangements(codes[kept], owner)
            evidence = max(evidence, -np.log(_EIGEN) * np.maximum(0, distinct - 3).sum())
            if evidence > nodes.threshold(len(matrices)):
                return int(nodes.varying[place]), f"an eigenvector of the {name}, a positional encoding"
    return None


def _neighbour_sums(nodes: _Nodes) -> Suspect:
    """Columns that sum or average another one over the neighbours."""
    chosen = nodes.varying[:_WIDEST]
    if len(chosen) < 2:
        return None
    loops = nodes.adjacency + sparse.eye_array(len(nodes))
    matrices = {
        "the sum over the neighbours": nodes.adjacency,
        "the mean over the neighbours": nodes.walk,
        "the sum over a node and its neighbours": loops,
        "the mean over a node and its neighbours": sparse.diags_array(1 / (nodes.degrees + 1.0)) @ loops,
    }
    columns = nodes.columns[chosen]
    plain = _unit(nodes.standardised(columns))
    without = (plain @ plain.T) ** 2
    needed = nodes.threshold(len(matrices) * len(chosen))
    for name, matrix in matrices.items():
        summed = (matrix @ columns.T).T
        share = (plain @ _unit(nodes.standardised(summed)).T) ** 2
        # a column that is smooth over the edges is near the mean of its neighbours, and so is a copy of it
        better = (share >= _EXPLAINED) & (1 - share < 0.2 * (1 - without)) & (without < 1 - 1e-9)
        for column, other in np.argwhere(better):
            codes = _codes(columns[column])
            # a few large values agree by accident, however many small ones stand beside them
            large = float(1 / (plain[column] ** 4).sum())
            freedom = min(len(nodes) - len(nodes.sizes), int(2 * large))
            evidence = _variance_evidence(share[column, other], codes.max() + 1, freedom)
            if evidence > needed:
                return int(chosen[column]), f"{name} of column {int(chosen[other])}"
    return None


def _adjacency_rows(nodes: _Nodes) -> Suspect:
    """Neighbouring columns that are non-zero where there are edges (and perhaps loops): of node j in column ``start + j``."""
    graphs = [graph for graph in nodes.graphs if graph.num_edges][:20]
    width = len(nodes.columns)
    for start in range(width - 3):
        for loops in (0, 1):
            evidence = 0.0
            for graph in graphs:
                most = min(graph.num_nodes, width - start)
                assert graph.node_features is not None
                block = graph.node_features[:, start : start + most] != 0
                edges = (graph.adjacency() + loops * np.eye(graph.num_nodes))[:, :most] > 0
                ones, cells = int(edges.sum()), edges.size
                if (block != edges).sum() > _EXCEPTIONS * ones:
                    break
                evidence += float(gammaln(cells + 1) - gammaln(ones + 1) - gammaln(cells - ones + 1))
            else:
                if evidence > nodes.threshold(2):
                    return start, "the first of the rows of the adjacency matrix"
    return None
