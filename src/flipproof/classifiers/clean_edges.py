"""Node features that know the clean edges: no noise reaches them, and every certificate would be false.

A column is refused if a structural quantity of the clean graph (degree, triangles, PageRank, ...) predicts it almost perfectly
over all the graphs:

- *few values*: the column is a function of the quantity, on the whole data set or within every graph, but for a few exceptions;
- *many values*: the quantity explains nearly all of its variance, linearly, by rank, or by the means of its values;
- *eigenvectors* of the adjacency or Laplacian matrix, *sums over neighbours* of another column, *rows* of the adjacency matrix.

Accidents are told apart by counting: a random arrangement of the column's values must show the agreement with a probability below
one in a million, after paying for the function, its exceptions and the number of things tried. Atom types go along with degrees
without being a function of them, and pass; so does a quantity of the clean edges that is not listed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import shortest_path
from scipy.special import gammaln
from scipy.stats import rankdata

from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = ["refuse_clean_edges"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Found = tuple[int | None, str] | None

_NODES = 20_000  # on which quantities are compared; beyond that, graphs are sampled
_QUICK = 1_500  # nodes on which nearly all columns are told apart from nearly all quantities
_WIDEST = 256  # columns that are tried as sources of neighbour sums
_FAR = 500  # nodes of a graph up to which distances are computed,
_BETWEEN = 100  # and betweenness
_PAIRS = 2**17  # node pairs of which distances are computed, beyond the first graph
_EVIDENCE = float(np.log(1e6))
_EXCEPTIONS = 0.01  # share of the nodes
_OF_MINORITY = 0.1  # share of the nodes that do not have the most frequent value
_EXPLAINED = 0.98  # share of the variance
_FEW = 3  # values of a column that is judged as categories only
_GRAPHS = (
    20  # from which a column of two values is judged: on a few molecules an atom type follows the valence by accident
)
_EIGEN = 1e-3  # relative residual of an eigenvector


def refuse_clean_edges(graphs: Sequence[Graph], names: Sequence[str] = ()) -> None:
    """Refuse graphs whose own features are computed from their edges.

    A column is judged on *all* the graphs, so that a node label which happens to agree on a small graph passes together with
    graphs on which it does not.

    Args:
        graphs: Everything that is to be asked about or trained on.
        names: Names of the columns, where they have any.
    """
    by_width: dict[int, list[Graph]] = {}
    for graph in graphs:
        if graph.node_features is not None and graph.node_features.shape[1]:
            by_width.setdefault(graph.node_features.shape[1], []).append(graph)
    for given in by_width.values():
        found = _found(given)
        if found is None:
            continue
        column, what = found
        where = "node_features are" if column is None else f"column {column} of node_features is"
        if column is not None and column < len(names):
            where = f"column {column} of node_features ({names[column]}) is"
        name = f" of graph {given[0].name!r}" if len(given) == 1 and given[0].name is not None else ""
        raise InputError(
            f"{where} {what}{name}: computed on the clean graph, they would survive the noise and every certificate would be "
            'false (leave them out and pass features="degree", "one-hot-degree" or a function, which are computed on each noisy '
            "graph; trust_features=True if they only look like that)"
        )


def _found(graphs: Sequence[Graph]) -> Found:
    """The first column that knows the edges, and what it is; no number for a block of columns."""
    if max(graph.num_nodes for graph in graphs) < 4 or not any(graph.num_edges for graph in graphs):
        return None  # too little to tell
    nodes = _Nodes(_sampled(graphs))
    for search in (_degrees, _one_hot_degrees, _quantities, _eigenvectors, _neighbour_sums, _adjacency_rows):
        found = search(nodes)
        if found is not None:
            return found
    return None


def _sampled(graphs: Sequence[Graph]) -> Sequence[Graph]:
    total = sum(graph.num_nodes for graph in graphs)
    return graphs[:: -(-total // _NODES)]


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
        length = np.where(same, np.inf, length)
        scaled: Floats = centred / length[..., self.owner]
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


# ---- degrees, as they are usually written: also on a single small graph -----------------------------------------------------


def _degrees(nodes: _Nodes) -> Found:
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
        "the binary logarithms of the degrees plus one": np.log2(degrees + 1),
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
    wrong = (~np.isclose(nodes.columns, degrees, rtol=1e-5, atol=1e-6)).sum(axis=1)
    if len(nodes) >= 6 and wrong.min() <= max(1, _EXCEPTIONS * len(nodes)):
        return int(wrong.argmin()), f"the degrees, with {wrong.min()} exception{'s' * (int(wrong.min()) > 1)}"
    forms["the squares of the degrees"] = degrees**2
    for ties in ("average", "min"):
        ranks = rankdata(nodes.owner * len(nodes) + nodes.degrees, ties) - nodes.starts[nodes.owner]
        forms[f"the ranks of the degrees (ties: {ties})"] = ranks
    cuts = np.arange(3, int(degrees.max()))[:20]
    forms |= {f"the degrees, cut off at {cut}": np.minimum(degrees, cut) for cut in cuts}
    return _affine(nodes, forms)


def _affine(nodes: _Nodes, forms: dict[str, Floats]) -> Found:
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


def _one_hot_degrees(nodes: _Nodes) -> Found:
    """Neighbouring columns that hold the degree one-hot, beside any others.

    Atom types follow their valence, so that a one-to-one relation alone proves nothing: where few kinds could agree by accident,
    each must stand in its own place.
    """
    binary = ((nodes.columns == 0) | (nodes.columns == 1)).all(axis=1)
    counts = np.where(binary, nodes.columns.sum(axis=1), -1)
    degrees, width = nodes.degrees, len(counts)
    cuts = range(2, min(int(degrees.max()), width))
    codes = [(2, degrees), (3, degrees - 1), (4, np.unique(degrees, return_inverse=True)[1])]
    codes += [(3, np.minimum(degrees, cut)) for cut in cuts]
    for least, code in codes:
        sizes = np.bincount(np.maximum(code, 0))
        if code.min() < 0 or (sizes > 0).sum() < least or len(sizes) > width:
            continue
        for start in range(width - len(sizes) + 1):
            block = slice(start, start + len(sizes))
            if np.array_equal(counts[block], sizes) and (nodes.columns[start + code, np.arange(len(code))] == 1).all():
                alone = len(sizes) == (counts > 0).sum() or not counts[: block.start].any() + counts[block.stop :].any()
                return (None if alone else start), "the degrees, one-hot"
    return None


# ---- structural quantities ----------------------------------------------------------------------------------------------------


# quantities with few values. A finer one, such as PageRank, tells surroundings apart, which atom types are nearly a function of
_COUNTS = ("the degree", "the number of triangles", "the clustering coefficient", "the core number")


def _structure(nodes: _Nodes) -> Iterator[tuple[str, Floats]]:
    """Named quantities of every node; NaN where one would take too long."""
    adjacency, walk = nodes.adjacency, nodes.walk
    degrees = nodes.degrees.astype(np.float64)
    yield "the degree", degrees
    two = adjacency @ adjacency
    triangles = np.asarray(two.multiply(adjacency).sum(axis=1)).ravel() / 2
    yield "the number of triangles", triangles
    yield "the clustering coefficient", triangles / np.maximum(1, degrees * (degrees - 1) / 2)
    yield "the core number", _core_numbers(adjacency, degrees)
    yield "the PageRank", _page_rank(nodes)
    yield "the neighbours' degrees, summed", adjacency @ degrees
    yield "the neighbours' mean degree", walk @ degrees
    steps = walk @ walk
    yield "a random walk's return probability in 2 steps", steps.diagonal()
    yield "a random walk's return probability in 3 steps", np.asarray(steps.multiply(walk.T).sum(axis=1)).ravel()
    yield "a random walk's return probability in 4 steps", np.asarray(steps.multiply(steps.T).sum(axis=1)).ravel()
    yield "the number of nodes within two steps", np.diff(two.indptr).astype(np.float64)
    far = np.full((3, len(nodes)), np.nan)
    pairs = 0
    for graph, start in zip(nodes.graphs, nodes.starts, strict=True):
        if graph.num_nodes <= _FAR and pairs < _PAIRS:
            pairs += graph.num_nodes**2
            far[:, start : start + graph.num_nodes] = _distances(graph)
    yield from zip(("the eccentricity", "the closeness", "the betweenness"), far, strict=True)


def _core_numbers(adjacency: Any, degrees: Floats) -> Floats:
    core = np.zeros(len(degrees))
    left = np.ones(len(degrees), dtype=np.bool_)
    for level in range(1, int(degrees.max()) + 1):
        while True:  # peel off what has fewer neighbours left
            kept = left & (adjacency @ left.astype(np.float64) >= level)
            if (kept == left).all():
                break
            left = kept
        if not left.any():
            break
        core[left] = level
    return core


def _page_rank(nodes: _Nodes) -> Floats:
    share = 1 / nodes.sizes[nodes.owner]
    back, idle = nodes.walk.T.tocsr(), nodes.degrees == 0
    rank = share
    for _ in range(100):
        lost = nodes.sums(np.where(idle, rank, 0.0))[nodes.owner]
        rank = 0.85 * (back @ rank + lost * share) + 0.15 * share
    return rank


def _distances(graph: Graph) -> Floats:
    """Eccentricity, closeness and betweenness, ``[3, n]``; of a graph in parts, within the parts."""
    matrix, size = graph.adjacency().astype(np.float64), graph.num_nodes
    distance = shortest_path(matrix, unweighted=True, directed=False)
    near = np.isfinite(distance)
    reached = np.where(near, distance, 0)
    sums, others = reached.sum(axis=1), near.sum(axis=1) - 1
    closeness = np.divide(others**2, sums * max(1, size - 1), out=np.zeros(size), where=sums > 0)
    if size > _BETWEEN:
        return np.stack([reached.max(axis=1), closeness, np.full(size, np.nan)])
    paths = walks = np.eye(size)
    for length in range(1, int(reached.max()) + 1):
        walks = walks @ matrix
        paths = np.where(distance == length, walks, paths)
    # [from, via, to]; paths that begin or end at the node itself are taken off again
    between = (distance[:, :, None] + distance[None] == distance[:, None]) & near[:, None]
    shares = np.where(between, paths[:, :, None] * paths[None] / np.maximum(1, paths[:, None]), 0)
    return np.stack([reached.max(axis=1), closeness, shares.sum(axis=(0, 2)) - 2 * others - 1])


def _quantities(nodes: _Nodes) -> Found:
    """A column that one of the quantities predicts."""
    if not len(nodes.varying):
        return None
    columns = [_codes(nodes.columns[column]) for column in nodes.varying]
    structure = list(_structure(nodes))
    needed = nodes.threshold(4 * len(structure))
    for name, quantity in structure:
        known = np.isfinite(quantity)
        if not known.any() or np.ptp(quantity[known]) == 0:
            continue
        part = nodes
        if not known.all():
            part = _Nodes([graph for graph, start in zip(nodes.graphs, nodes.starts, strict=True) if known[start]])
        group = _codes(quantity[known])
        same = np.isclose(nodes.columns[nodes.varying][:, known], quantity[known], rtol=1e-5, atol=1e-6).all(axis=1)
        if same.any() and not set(np.unique(quantity[known])) <= {0.0, 1.0}:
            place = int(same.argmax())
            nothing = np.zeros(len(part), dtype=np.int64)
            if _exceptions(columns[place][known], nothing, nothing)[2] > needed / 2:
                return int(nodes.varying[place]), name
        # two kinds of nodes are too few: an atom and its hydrogens, or rings and what hangs on them
        for column, codes in zip(nodes.varying, columns, strict=True) if name in _COUNTS and group.max() > 1 else ():
            if codes.max() < 2 and len(part.sizes) < _GRAPHS:
                continue
            for owner, where in ((np.zeros(len(part), dtype=np.int64), ""), (part.owner, " within every graph")):
                if _function_evidence(codes[known], group, owner) > needed:
                    return int(column), f"a function of {name}{where}"
        many = [place for place, codes in enumerate(columns) if codes.max() >= _FEW]
        if many:
            counts = np.array([columns[place].max() + 1 for place in many])
            values = nodes.columns[nodes.varying[many]][:, known]
            found = _explained(part, values, counts, quantity[known], group, needed)
            if found is not None:
                return int(nodes.varying[many][found[0]]), f"{found[1]} {name}"
    return None


def _codes(values: Floats) -> Ints:
    """Numbers 0, 1, 2, ... in the order of the values; the same where they agree but for rounding."""
    scale = np.abs(values).max() or 1.0
    codes: Ints = np.unique(np.round(values / scale, 6), return_inverse=True)[1].astype(np.int64)
    return codes


def _function_evidence(column: Ints, quantity: Ints, owner: Ints) -> float:
    """How surprising it is, in nats, that the column is a function of the quantity (within every owner); -inf if it is none.

    The logarithm of the number of arrangements of the column's values within the owners, minus what it takes to write down the
    function and its exceptions.
    """
    if len(column) > 2 * _QUICK:
        stop = int(np.searchsorted(owner, owner[_QUICK], side="right")) if owner[-1] else _QUICK
        if stop < len(column):
            wrong, minority, _ = _exceptions(column[:stop], quantity[:stop], owner[:stop])
            if wrong > 5 * _EXCEPTIONS * stop or (minority > 50 and wrong > 3 * _OF_MINORITY * minority):
                return -np.inf
    wrong, minority, gained = _exceptions(column, quantity, owner)
    if wrong > max(1, _EXCEPTIONS * len(column)) or wrong > _OF_MINORITY * minority:
        return -np.inf
    return gained - wrong * float(np.log(len(column) * (column.max() + 1)))


def _exceptions(column: Ints, quantity: Ints, owner: Ints) -> tuple[int, int, float]:
    """Nodes beside the function, nodes beside the owner's most frequent value, and arrangements less the function, in nats."""
    values, kinds = int(column.max()) + 1, int(quantity.max()) + 1
    pairs, counts = np.unique(owner * values + column, return_counts=True)
    owners, first = np.unique(pairs // values, return_index=True)
    frequent = np.maximum.reduceat(counts, first)
    in_owner = np.add.reduceat(counts, first)
    arrangements = gammaln(in_owner + 1).sum() - gammaln(counts + 1).sum()
    distinct = np.diff(np.r_[first, len(pairs)])
    cells, inside = np.unique((owner * kinds + quantity) * values + column, return_counts=True)
    groups, start = np.unique(cells // values, return_index=True)
    right = np.maximum.reduceat(inside, start).sum()
    function = np.log(distinct[np.searchsorted(owners, groups // kinds)]).sum()
    return int(len(column) - right), int(len(column) - frequent.sum()), float(arrangements - function)


def _explained(
    nodes: _Nodes, values: Floats, counts: Ints, quantity: Floats, group: Ints, needed: float
) -> tuple[int, str] | None:
    """A column (of so many different values) whose variance the quantity explains; and how, in words."""
    ranks = np.stack([rankdata(row) for row in values])
    inside, own = nodes.standardised(values), nodes.standardised(quantity[None])[0]
    graphs = np.sqrt(nodes.sums(inside**2).sum(axis=1) * max(1.0, float(own @ own)))
    size = len(quantity)
    ways = [
        ("an affine function of", _correlation(values, quantity) ** 2, size - 2),
        ("a monotone function of", _correlation(ranks, rankdata(quantity)) ** 2, size - 2),
        (
            "in every graph an affine function of",
            (inside @ own / np.maximum(1, graphs)) ** 2,
            size - 2 * len(nodes.sizes),
        ),
    ]
    sizes = np.bincount(group)
    if len(sizes) < size / 10:
        means = np.stack([np.bincount(group, row) for row in values]) / sizes
        left = ((values - means[:, group]) ** 2).mean(axis=1) / values.var(axis=1)
        ways.append(("nearly a function of", 1 - left, size - len(sizes)))
    for what, share, freedom in ways:
        # no order of so many values is more surprising than this, whatever the rank correlation
        evidence = np.minimum(
            _variance_evidence(share, counts, freedom), gammaln(counts + 1) if "monotone" in what else np.inf
        )
        hits = np.flatnonzero((share >= _EXPLAINED) & (evidence > needed))
        if len(hits):
            return int(hits[0]), what
    if np.array_equal(quantity, nodes.degrees):
        for place, row in enumerate(values):
            if _sorts(row, nodes, needed):
                return place, "in every graph in the order of"
    return None


def _variance_evidence(share: Any, counts: Any, freedom: int) -> Any:
    """How surprising it is, in nats, that this share of a column's variance is explained; few values are worth little."""
    return -np.minimum(freedom, 3 * (counts - 2)) / 2 * np.log(np.maximum(1 - share, 1e-12))


def _correlation(rows: Floats, values: Floats) -> Floats:
    rows, values = rows - rows.mean(axis=1, keepdims=True), values - values.mean()
    scale = np.sqrt((rows**2).sum(axis=1) * (values**2).sum())
    found: Floats = rows @ values / np.maximum(scale, 1e-300)
    return found


def _sorts(values: Floats, nodes: _Nodes, needed: float) -> bool:
    """Whether the order of the values puts the degrees of every graph in order: ranks, with ties broken somehow."""
    if len(np.unique(np.stack([nodes.owner, _codes(values)]), axis=1).T) < 0.9 * len(values):
        return False
    kinds = int(nodes.degrees.max()) + 1
    counts = np.unique(nodes.owner * kinds + nodes.degrees, return_counts=True)[1]
    arrangements = gammaln(nodes.sizes + 1).sum() - gammaln(counts + 1).sum()
    for direction in (1, -1):
        order = np.lexsort((direction * values, nodes.owner))
        degrees = nodes.degrees[order]
        wrong = int(((np.diff(degrees) < 0) & (np.diff(nodes.owner) == 0)).sum())
        if wrong <= _EXCEPTIONS * len(values) and arrangements - wrong * np.log(len(values)) > needed:
            return True
    return False


# ---- matrices -----------------------------------------------------------------------------------------------------------------


def _eigenvectors(nodes: _Nodes) -> Found:
    """Positional encodings: columns that are, in nearly every graph, an eigenvector of a matrix of its edges."""
    if not len(nodes.varying):
        return None
    degrees = nodes.degrees.astype(np.float64)
    root = sparse.diags_array(1 / np.sqrt(np.maximum(degrees, 1)))
    matrices = {
        "adjacency matrix": nodes.adjacency,
        "Laplacian": sparse.diags_array(degrees) - nodes.adjacency,
        "normalised Laplacian": root @ nodes.adjacency @ root,
        "random-walk matrix": nodes.walk,
    }
    values = nodes.columns[nodes.varying]
    # of a complete graph, everything with mean 0 is an eigenvector
    complete = nodes.sums(degrees) == nodes.sizes * (nodes.sizes - 1)
    asked = nodes.differ(values) & ~complete
    lengths = np.maximum(nodes.sums(values**2), 1e-300)
    for name, matrix in matrices.items():
        images = (matrix @ values.T).T
        factor = nodes.sums(images * values) / lengths
        residual = nodes.sums((images - factor[:, nodes.owner] * values) ** 2) / lengths
        scale = np.maximum(1, np.abs(factor)) * _EIGEN
        hits = asked & (residual < scale**2)
        for place in np.flatnonzero((hits.sum(axis=1) >= 0.9 * asked.sum(axis=1)) & hits.any(axis=1)):
            codes = _codes(values[place])
            kept = hits[place][nodes.owner]
            owner = nodes.owner[kept]
            distinct = np.bincount(np.unique(np.stack([owner, codes[kept]]), axis=1)[0])
            evidence = _exceptions(codes[kept], np.zeros(len(owner), dtype=np.int64), owner)[2]
            evidence = max(evidence, -np.log(_EIGEN) * np.maximum(0, distinct - 3).sum())
            if evidence > nodes.threshold(len(matrices)):
                return int(nodes.varying[place]), f"an eigenvector of the {name}, a positional encoding"
    return None


def _neighbour_sums(nodes: _Nodes) -> Found:
    """Columns that sum or average another one over the neighbours."""
    chosen = nodes.varying[:_WIDEST]
    if len(chosen) < 2:
        return None
    loops = nodes.adjacency + sparse.eye_array(len(nodes))
    more = sparse.diags_array(1 / np.sqrt(nodes.degrees + 1.0))
    matrices = {
        "the sum over the neighbours": nodes.adjacency,
        "the mean over the neighbours": nodes.walk,
        "the sum over a node and its neighbours": loops,
        "the mean over a node and its neighbours": more @ more @ loops,
        "the normalised sum over a node and its neighbours": more @ loops @ more,
    }
    columns = nodes.columns[chosen]

    def centred(values: Floats) -> Floats:
        values = values - (nodes.sums(values) / nodes.sizes)[:, nodes.owner]
        scaled: Floats = values / np.maximum(np.sqrt((values**2).sum(axis=1, keepdims=True)), 1e-300)
        return scaled

    plain = centred(columns)
    without = (plain @ plain.T) ** 2
    needed = nodes.threshold(len(matrices) * len(chosen))
    for name, matrix in matrices.items():
        summed = (matrix @ columns.T).T
        share = (plain @ centred(summed).T) ** 2
        # a column that is smooth over the edges is near the mean of its neighbours, and so is a copy of it
        better = (share >= _EXPLAINED) & (1 - share < 0.2 * (1 - without)) & ~np.eye(len(chosen), dtype=np.bool_)
        for column, other in np.argwhere(better):
            codes = _codes(columns[column])
            if codes.max() >= _FEW:
                evidence = _variance_evidence(share[column, other], codes.max() + 1, len(nodes) - len(nodes.sizes))
            else:
                evidence = _function_evidence(codes, _codes(summed[other]), np.zeros(len(nodes), dtype=np.int64))
            if evidence > needed:
                return int(chosen[column]), f"{name} of column {int(chosen[other])}"
    return None


def _adjacency_rows(nodes: _Nodes) -> Found:
    """Neighbouring columns that are non-zero where there are edges (and perhaps loops): of node j in column ``start + j``."""
    given = [graph for graph in nodes.graphs if graph.num_edges][:20]
    width = len(nodes.columns)
    for start in range(width - 3):
        for loops in (0, 1):
            right, evidence = True, 0.0
            for graph in given:
                most = min(graph.num_nodes, width - start)
                assert graph.node_features is not None
                block = graph.node_features[:, start : start + most] != 0
                edges = (graph.adjacency() + loops * np.eye(graph.num_nodes))[:, :most] > 0
                ones, cells = int(edges.sum()), edges.size
                if (block != edges).sum() > _EXCEPTIONS * ones:
                    right = False
                    break
                evidence += float(gammaln(cells + 1) - gammaln(ones + 1) - gammaln(cells - ones + 1))
            if right and evidence > nodes.threshold(2):
                return start, "the first of the rows of the adjacency matrix"
    return None
