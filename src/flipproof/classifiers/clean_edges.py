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

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln
from scipy.stats import rankdata

from flipproof.classifiers.node_structure import COUNTS, Floats, Ints, Nodes, structure
from flipproof.errors import InputError
from flipproof.graphs import Graph

__all__ = ["refuse_clean_edges"]

Found = tuple[int | None, str] | None

_NODES = 20_000  # on which quantities are compared; beyond that, graphs are sampled
_QUICK = 1_500  # nodes on which nearly all columns are told apart from nearly all quantities
_FIRST = 64  # nodes that are compared before all others
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

    A column is judged on *all* the graphs, so that a node label which happens to agree on a small graph passes together with
    graphs on which it does not.

    Args:
        graphs: Everything that is to be asked about or trained on.
        names: Names of the columns, where they have any.
    """
    widths = [0 if graph.node_features is None else graph.node_features.shape[1] for graph in graphs]
    for width in dict.fromkeys(filter(None, widths)):
        same = graphs if len(set(widths)) == 1 else None  # graphs of a large data set are not all built at once
        given = same or [graph for graph, own in zip(graphs, widths, strict=True) if own == width]
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
    nodes = Nodes(_sampled(graphs))
    for search in (_degrees, _one_hot_degrees, _quantities, _eigenvectors, _neighbour_sums, _adjacency_rows):
        found = search(nodes)
        if found is not None:
            return found
    return None


def _sampled(graphs: Sequence[Graph]) -> Sequence[Graph]:
    total = sum(graph.num_nodes for graph in graphs)
    return graphs[:: -(-total // _NODES)]


# ---- degrees, as they are usually written: also on a single small graph -----------------------------------------------------


def _degrees(nodes: Nodes) -> Found:
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
        equal = _equal(nodes.columns, values)
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


def _equal(columns: Floats, values: Floats) -> NDArray[np.bool_]:
    """Which columns hold these values, but for rounding; most differ in one of the first nodes."""
    found = np.asarray(np.isclose(columns[:, :_FIRST], values[:_FIRST], rtol=1e-5, atol=1e-6).all(axis=1))
    found[found] = np.isclose(columns[found], values, rtol=1e-5, atol=1e-6).all(axis=1)
    return found


def _affine(nodes: Nodes, forms: dict[str, Floats]) -> Found:
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


def _one_hot_degrees(nodes: Nodes) -> Found:
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


def _quantities(nodes: Nodes) -> Found:
    """A column that one of the quantities predicts."""
    if not len(nodes.varying):
        return None
    columns = [_codes(nodes.columns[column]) for column in nodes.varying]
    quantities = list(structure(nodes))
    needed = nodes.threshold(4 * len(quantities))
    blocks = _one_hot_blocks(nodes)
    for name, quantity in quantities:
        known = np.isfinite(quantity)
        if not known.any() or np.ptp(quantity[known]) == 0:
            continue
        part = nodes
        if not known.all():
            part = Nodes([graph for graph, start in zip(nodes.graphs, nodes.starts, strict=True) if known[start]])
        group = _codes(quantity[known])
        same = _equal(nodes.columns[nodes.varying][:, known], quantity[known])
        if same.any() and not set(np.unique(quantity[known])) <= {0.0, 1.0}:
            place = int(same.argmax())
            nothing = np.zeros(len(part), dtype=np.int64)
            if _exceptions(columns[place][known], nothing, nothing)[2] > needed / 2:
                return int(nodes.varying[place]), name
        # two kinds of nodes are too few: an atom and its hydrogens, or rings and what hangs on them
        for column, codes in zip(nodes.varying, columns, strict=True) if name in COUNTS and group.max() > 1 else ():
            # one odd molecule is one accident, however many of its atoms take part in it
            if codes.max() < 2 and (part.fewer(_GRAPHS) or part.in_fewer(codes[known], _HOLDERS)):
                continue
            ways = [(np.zeros(len(part), dtype=np.int64), "")]
            ways += [(part.owner, " within every graph")] if codes.max() > 1 or not part.fewer(5 * _GRAPHS) else []
            for owner, where in ways:
                if _function_evidence(codes[known], group, owner) > needed:
                    return int(column), f"a function of {name}{where}"
        for start, codes in blocks if name in COUNTS and group.max() > 1 else ():
            if _function_evidence(codes[known], group, np.zeros(len(part), dtype=np.int64)) > needed:
                return start, f"the first of several that hold a function of {name}, one-hot"
        many = [place for place, codes in enumerate(columns) if codes.max() >= _FEW]
        if many:
            counts = np.array([columns[place].max() + 1 for place in many])
            values = nodes.columns[nodes.varying[many]][:, known]
            found = _explained(part, values, counts, quantity[known], group, needed)
            if found is not None:
                return int(nodes.varying[many][found[0]]), f"{found[1]} {name}"
    return None


def _one_hot_blocks(nodes: Nodes) -> list[tuple[int, Ints]]:
    """Neighbouring columns of which each node has exactly one: the first of them, and which one each node has.

    Only blocks of three kinds and more: together they tell more than any of their columns.
    """
    binary = ((nodes.columns == 0) | (nodes.columns == 1)).all(axis=1)
    found, begun = [], dict[bytes, int]()
    before = np.zeros(len(nodes), dtype=np.int64)
    for column, values in enumerate(nodes.columns):
        if not binary[column]:
            begun.clear()
            continue
        begun[before.tobytes()] = column  # of equals the last: empty columns in front are no part of a block
        before = before + values.astype(np.int64)
        start = begun.get((before - 1).tobytes())
        if start is not None and values.any():
            kinds = np.unique(nodes.columns[start : column + 1].argmax(axis=0), return_inverse=True)[1]
            if kinds.max() > 1:
                found.append((start, kinds.astype(np.int64)))
    return found


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
    nodes: Nodes, values: Floats, counts: Ints, quantity: Floats, group: Ints, needed: float
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


def _sorts(values: Floats, nodes: Nodes, needed: float) -> bool:
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


def _eigenvectors(nodes: Nodes) -> Found:
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
            # what is the same within every part of a graph is an eigenvector by accident
            kept = (hits[place] & nodes.differ_over_edges(codes))[nodes.owner]
            if not kept.any():
                continue
            owner = nodes.owner[kept]
            distinct = np.bincount(np.unique(np.stack([owner, codes[kept]]), axis=1)[0])
            evidence = _exceptions(codes[kept], np.zeros(len(owner), dtype=np.int64), owner)[2]
            evidence = max(evidence, -np.log(_EIGEN) * np.maximum(0, distinct - 3).sum())
            if evidence > nodes.threshold(len(matrices)):
                return int(nodes.varying[place]), f"an eigenvector of the {name}, a positional encoding"
    return None


def _neighbour_sums(nodes: Nodes) -> Found:
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
        better = (share >= _EXPLAINED) & (1 - share < 0.2 * (1 - without)) & (without < 1 - 1e-9)
        for column, other in np.argwhere(better):
            codes = _codes(columns[column])
            if codes.max() < 2 and nodes.fewer(_GRAPHS):
                continue
            if codes.max() >= _FEW:
                # a few large values agree by accident, however many small ones stand beside them
                large = float(1 / (plain[column] ** 4).sum())
                freedom = min(len(nodes) - len(nodes.sizes), int(2 * large))
                evidence = _variance_evidence(share[column, other], codes.max() + 1, freedom)
            else:
                evidence = _function_evidence(codes, _codes(summed[other]), np.zeros(len(nodes), dtype=np.int64))
            if evidence > needed:
                return int(chosen[column]), f"{name} of column {int(chosen[other])}"
    return None


def _adjacency_rows(nodes: Nodes) -> Found:
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
