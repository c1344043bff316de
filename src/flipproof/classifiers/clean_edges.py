"""Node features that know the clean edges: no noise reaches them, and every certificate would be false.

Four tests, on all the graphs together: columns that are the degrees, plain or one-hot; columns in the order of a quantity of the
clean graph (degree, triangles, PageRank, ...); columns that are an eigenvector, or sums over neighbours of another column; rows
of the adjacency matrix or of its square.

Accidents are told apart by counting: a random arrangement of the column's values must show the agreement with a probability below
one in a million, divided by the number of things tried. Atom types go along with degrees without being a function of them, and
pass; so does a quantity of the clean edges that is not listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln

from flipproof.errors import InputError
from flipproof.graphs import Graph

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NODES = 20_000  # on which columns are compared; beyond that, graphs are sampled
_PARTNERS = 16  # nodes of the same graph with which each is compared
_EXCEPTIONS, _OF_MINORITY = 0.01, 0.1  # of all, and of the nodes with the rarer of two values
_PROJECTIONS, _NEAR = 64, 0.9  # vectors at a distance of 0.015 are at one of 0.1 at most after them
_COUNTS = 3  # the first quantities have few values
_EXACT = 1e-4  # share of the variance that rounding leaves
_VALENCE, _GRAPHS, _HOLDERS = 6, 20, 5  # see _Nodes.too_few


def refuse_clean_edges(graphs: Sequence[Graph], names: Sequence[str] = ()) -> None:
    """Refuse graphs whose own features are computed from their edges.

    A column is judged on *all* the graphs: a node label that happens to agree on a small graph passes together with graphs on
    which it does not. ``names`` are those of the columns, where they have any.
    """
    widths = [0 if graph.node_features is None else graph.node_features.shape[1] for graph in graphs]
    for width in dict.fromkeys(filter(None, widths)):
        same = graphs if len(set(widths)) == 1 else None  # graphs of a large data set are not all built at once
        alike = same or [graph for graph, own in zip(graphs, widths, strict=True) if own == width]
        if max(graph.num_nodes for graph in alike) < 3 or not any(graph.num_edges for graph in alike):
            continue  # too little to tell
        nodes = _Nodes(alike[:: -(-sum(graph.num_nodes for graph in alike) // _NODES)])
        tests = (_degrees, _quantity, _linear, _adjacency_rows)
        column, what = next((suspect for test in tests for suspect in test(nodes)), (-1, ""))
        if what:
            shown = f" ({names[column]})" if column < len(names) else ""
            name = f" of graph {alike[0].name!r}" if len(alike) == 1 and alike[0].name is not None else ""
            raise InputError(
                f"column {column} of node_features{shown} is {what}{name}: computed on the clean graph, it would survive the "
                'noise and every certificate would be false (leave it out and pass features="degree", "one-hot-degree" or a '
                "function, which are computed on each noisy graph; trust_features=True if it only looks like that)"
            )


class _Nodes:
    """The nodes of all graphs as one union: their columns, and their edges."""

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs, self.sizes = graphs, np.array([graph.num_nodes for graph in graphs])
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.owner = np.repeat(np.arange(len(graphs)), self.sizes)
        features = [graph.node_features for graph in graphs if graph.node_features is not None]
        self.columns: Floats = np.concatenate(features).astype(np.float64).T
        self.degrees: Ints = np.concatenate([graph.degrees for graph in graphs])
        edges = np.concatenate([graph.edges + start for graph, start in zip(graphs, self.starts, strict=True)])
        count = len(self.owner)
        self.adjacency = sparse.csr_array((np.ones(len(edges)), edges.T), shape=(count, count))
        self.adjacency += self.adjacency.T
        self.walk = sparse.diags_array(1 / np.maximum(self.degrees, 1)) @ self.adjacency

    def sums(self, values: Floats) -> Floats:
        """Sums over every graph, ``[..., graphs]``."""
        return np.add.reduceat(values, self.starts, axis=-1)

    def standardised(self, values: Floats) -> Floats:
        """Mean 0 and length 1 in every graph in which the values differ, 0 elsewhere."""
        centred = values - (self.sums(values) / self.sizes)[..., self.owner]
        length = np.sqrt(self.sums(centred**2))
        same = length < 1e-6 * np.sqrt(self.sums(values**2)) + 1e-300
        scaled: Floats = centred / np.where(same, np.inf, length)[..., self.owner]
        return scaled

    def needed(self, tried: int) -> float:
        """The evidence, in nats, that is needed when each column is compared with this number of things."""
        return float(np.log(1e6 * len(self.columns) * tried))

    def evidence(self, codes: Ints) -> float:
        """The logarithm of the number of orders of these values, within every graph."""
        counts = np.unique(self.owner * (codes.max() + 1) + codes, return_counts=True)[1]
        return float(gammaln(self.sizes + 1).sum() - gammaln(counts + 1).sum())

    def too_few(self, codes: Ints) -> bool:
        """Whether these could be so few molecules that an atom type, one of two, follows the valence by accident."""
        holders = np.unique(self.owner[codes == np.bincount(codes, minlength=2).argmin()])
        few = len(self.sizes) < _GRAPHS or len(holders) < _HOLDERS
        return bool(codes.max() < 2 and few and self.degrees.max() <= _VALENCE)


def _codes(values: Floats) -> Ints:
    """Numbers 0, 1, 2, ... in the order of the values; the same where they agree but for rounding."""
    scale = np.abs(values).max() or 1.0
    return np.unique(np.round(values / scale, 6), return_inverse=True)[1].astype(np.int64)


def _degrees(nodes: _Nodes) -> Iterator[tuple[int, str]]:
    """Degrees as they are usually written, also on a single small graph: exactly, or multiplied by a number and shifted."""
    degrees, size, columns = nodes.degrees.astype(np.float64), nodes.sizes[nodes.owner], nodes.columns
    largest = np.maximum.reduceat(degrees, nodes.starts)[nodes.owner]
    forms = [degrees, degrees + 1, *(degrees / np.maximum(1, part) for part in (size, size - 1, largest))]
    forms += [np.log1p(degrees), 1 / (degrees + 1), (degrees + 1) ** -0.5, degrees**0.5, nodes.standardised(degrees)]
    centred = columns - columns.mean(axis=1, keepdims=True)
    for form in forms:
        rounding = 1e-6 + 1e-5 * np.abs(form)
        equal = (np.abs(columns - form) <= rounding).all(axis=1)
        if len(np.unique(form)) < 3:
            equal &= not set(np.unique(form)) <= {0.0, 1.0} and np.ptp(degrees) > 0  # else by accident, too easily
        else:
            slope = centred @ (form - form.mean()) / ((form - form.mean()) ** 2).sum()
            left = np.abs(centred - slope[:, None] * (form - form.mean()))
            equal |= (np.abs(slope) > 1e-6) & (left <= np.abs(slope[:, None]) * rounding).all(axis=1)
        for column in np.flatnonzero(equal):
            yield int(column), "the degrees, or a usual form of them"
    for low in {0, int(degrees.min())}:
        for cut in range(2, min(int(degrees.max()), len(columns)) + 1):
            kinds = np.minimum(nodes.degrees, cut)
            one_hot = kinds == np.arange(low, cut + 1)[:, None]
            if len(np.unique(kinds)) < (2 if cut == degrees.max() else 3) or len(one_hot) < 3:
                continue
            alike = columns[: len(columns) - len(one_hot) + 1].sum(axis=1) == one_hot[0].sum()
            for start in np.flatnonzero(alike).tolist():
                if all(np.array_equal(*rows) for rows in zip(columns[start:], one_hot, strict=False)):
                    yield start, "the first of the degrees, one-hot"


def _quantities(nodes: _Nodes) -> dict[str, Floats]:
    """Of every node, all from powers of the adjacency matrix and of its random walk."""
    degrees, steps = nodes.degrees.astype(np.float64), nodes.walk @ nodes.walk
    triangles = np.asarray((nodes.adjacency @ nodes.adjacency).multiply(nodes.adjacency).sum(axis=1)).ravel() / 2
    share = rank = 1 / nodes.sizes[nodes.owner]
    for _ in range(100):
        lost = nodes.sums(np.where(nodes.degrees == 0, rank, 0.0))[nodes.owner]
        rank = 0.85 * (nodes.walk.T @ rank + lost * share) + 0.15 * share
    return {
        "degree": degrees,
        "number of triangles": triangles,
        "clustering coefficient": triangles / np.maximum(1, degrees * (degrees - 1) / 2),
        "PageRank": rank,
        "probability that a random walk is back in 2 steps": steps.diagonal(),
        "probability that a random walk is back in 3 steps": np.asarray(steps.multiply(nodes.walk.T).sum(axis=1)),
        "probability that a random walk is back in 4 steps": np.asarray(steps.multiply(steps.T).sum(axis=1)),
    }


def _quantity(nodes: _Nodes) -> Iterator[tuple[int, str]]:
    """Columns that are a function of a quantity, or put the nodes of every graph in its order."""
    place = np.arange(len(nodes.owner)) - nodes.starts[nodes.owner]
    offsets = np.arange(1, min(_PARTNERS, nodes.sizes.max()) + 1)[:, None]
    partners = nodes.starts[nodes.owner] + (place + offsets) % nodes.sizes[nodes.owner]
    quantities = {name: _codes(values) for name, values in _quantities(nodes).items()}
    signs = {name: np.sign(codes - codes[partners]).ravel() for name, codes in quantities.items()}
    for column, values in enumerate(nodes.columns):
        codes = _codes(values)
        mine = np.sign(codes - codes[partners]).ravel()
        if not mine.any() or nodes.too_few(codes):
            continue
        for number, (name, quantity) in enumerate(quantities.items()):
            if codes.max() > 1:
                hit = _in_order(nodes, codes, quantity, mine, signs[name])
            else:  # finer quantities tell surroundings apart, and atom types nearly follow from them
                hit = number < _COUNTS and _function(codes, quantity) > nodes.needed(_COUNTS)
            if hit:
                yield column, f"a function of the {name}, or in every graph in the order of it"


def _in_order(nodes: _Nodes, codes: Ints, quantity: Ints, mine: Ints, other: Ints) -> bool:
    """Whether few pairs of nodes, of which these are the orders by column and by quantity, contradict each other."""
    both = np.abs(mine) @ np.abs(other)
    against = (both - abs(mine @ other)) // 2
    # pairs that contradict a function of the quantity; or an order by it, with ties broken
    for wrong, coarser in ((np.abs(mine).sum() - both, codes), (np.abs(other).sum() - both, quantity)):
        paid = (wrong + against) * np.log(len(codes) * (codes.max() + 1))
        few = wrong + against <= _EXCEPTIONS * (both - against)
        if few and nodes.evidence(coarser) - paid > nodes.needed(14):
            return True
    return False


def _function(codes: Ints, quantity: Ints) -> float:
    """How surprising it is, in nats, that a column of two values is a function of the quantity; -inf if it is none."""
    ones, sizes, counts = np.bincount(quantity, codes), np.bincount(quantity), np.bincount(codes)
    wrong = np.minimum(ones, sizes - ones).sum()
    # two kinds of nodes are too few: an atom and its hydrogens, or rings and what hangs on them
    if len(sizes) < 3 or wrong > max(1, _EXCEPTIONS * len(codes)) or wrong > _OF_MINORITY * counts.min():
        return -np.inf
    paid = len(sizes) * np.log(2) + wrong * np.log(2 * len(codes))
    return float(gammaln(len(codes) + 1) - gammaln(counts + 1).sum() - paid)


def _linear(nodes: _Nodes) -> Iterator[tuple[int, str]]:
    """Columns that are, in nearly every graph, a matrix of the edges times themselves or times another column."""
    degrees, loops = nodes.degrees.astype(np.float64), nodes.adjacency + sparse.eye_array(len(nodes.owner))
    root = sparse.diags_array(1 / np.sqrt(np.maximum(degrees, 1)))
    matrices = {
        "adjacency matrix": nodes.adjacency,
        "Laplacian": sparse.diags_array(degrees) - nodes.adjacency,
        "normalised Laplacian": root @ nodes.adjacency @ root,
        "mean over the neighbours": nodes.walk,
        "mean over a node and its neighbours": sparse.diags_array(1 / (degrees + 1)) @ loops,
        "sum over a node and its neighbours": loops,
    }
    # of a complete graph, everything with mean 0 is an eigenvector
    open_graphs = nodes.sums(degrees) < nodes.sizes * (nodes.sizes - 1)
    plain = nodes.standardised(nodes.columns)
    apart = np.sort(plain + 3.0 * nodes.owner, axis=1)  # graph by graph
    distinct = nodes.sums((np.diff(apart, prepend=-9) > 1e-6).astype(np.float64))
    judged = (distinct > 1) & open_graphs
    freedom = np.maximum(0, distinct - 3)
    for name, matrix in matrices.items():
        images = nodes.standardised((matrix @ nodes.columns.T).T)
        for source in _near(plain, images) if len(nodes.sizes) == 1 else range(len(images)):
            image = images[source]
            hits = judged & (nodes.sums(plain * image) ** 2 > 1 - _EXACT)
            enough = -np.log(_EXACT) / 2 * (freedom * hits).sum(axis=1) > nodes.needed(len(matrices) * len(plain))
            for column in np.flatnonzero(enough & (hits.sum(axis=1) >= 0.9 * judged.sum(axis=1))):
                of = "itself, an eigenvector" if column == source else f"column {source}"
                yield int(column), f"a multiple of the {name} of {of}"


def _near(columns: Floats, images: Floats) -> list[int]:
    """Which of the images, of mean 0 and length 1 as the columns are, could be a multiple of one of them.

    Both are projected at random: vectors that differ by no more than :data:`_EXACT` allows stay together.
    """
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (columns.shape[1], _PROJECTIONS))
    one, other = (part @ signs for part in (columns, images))
    one, other = (part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-300) for part in (one, other))
    return [int(place) for place in np.flatnonzero((np.abs(one @ other.T) > _NEAR).any(axis=0))]


def _adjacency_rows(nodes: _Nodes) -> Iterator[tuple[int, str]]:
    """Neighbouring columns that are non-zero where there are walks of one step, or two, to node j in column ``start + j``."""
    filled = np.concatenate([[0], np.cumsum(np.count_nonzero(nodes.columns, axis=1))])
    width, loops = len(nodes.columns), sparse.eye_array(len(nodes.owner))
    spans = [(first, first + size) for first, size in zip(nodes.starts, nodes.sizes, strict=True)][:20]
    for matrix in (nodes.adjacency, nodes.adjacency + loops, nodes.adjacency @ nodes.adjacency):
        walked = np.concatenate([[0], np.cumsum(np.diff(matrix.tocsc().indptr))])
        for start in range(width - 3):
            evidence = 0.0
            if len(spans) == 1 == len(nodes.sizes):  # unlike numbers tell a large graph's apart at once
                number = walked[min(len(nodes.owner), width - start)]
                if abs(filled[min(start + len(nodes.owner), width)] - filled[start] - number) > _EXCEPTIONS * number:
                    continue
            for first, last in spans:
                stop = min(last, first + width - start)
                walks = matrix[first:last, first:stop].toarray() > 0
                block = nodes.columns[start : start + stop - first, first:last].T != 0
                if (block != walks).sum() > _EXCEPTIONS * walks.sum():
                    break
                counts = np.array([walks.size, walks.sum(), walks.size - walks.sum()])
                evidence += float(gammaln(counts + 1) @ [1, -1, -1])
            else:
                if evidence > nodes.needed(3):
                    yield start, "the first of the rows of the adjacency matrix, or of its square"
