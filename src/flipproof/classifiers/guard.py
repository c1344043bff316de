"""What is refused before any long work: graphs or a model for which certificates would be false, or asking would fail."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray, pairs_of_slots
from flipproof.noise import EdgeNoise, NoisyBatch, SampleStream, SlotLists

if TYPE_CHECKING:
    from flipproof.classifiers.classifier import Classifier

_DENSE_SLOTS = 4096  # up to here a nearly complete graph is among them
_FULL = 0.9  # of the slots: in a complete graph all nodes look alike
_MOST_EDGES, _EDGES_PER_NODE = 4096, 1  # beyond, the fullest has so many edges, or so many per node
_OWN = 3


def nodes_batch(graph: Graph, noise: EdgeNoise) -> NoisyBatch:
    """Graphs as different as can be, and noisy copies of a random one: a function of nodes, their features and noise alone."""
    nodes = graph.num_nodes
    sparse = _rows(nodes, nodes * (nodes - 1) // 2, 0)[-1]
    return probe_batch(Graph(nodes, pairs_of_slots(sparse, nodes), graph.node_features), noise)


def probe_batch(graph: Graph, noise: EdgeNoise, more: int = 0) -> NoisyBatch:
    """The empty graph, a nearly complete one, fuller and sparser ones, noisy copies of the graph, ``more`` random ones."""
    copies = _OWN if graph.num_slots <= _DENSE_SLOTS else 1
    own = SampleStream(graph, noise, seed=0).batch(0, copies)[0].edge_lists()
    kept = np.isin(own.slot, graph.frozen_edge_slots, invert=True)
    sample, slot = own.sample[kept], own.slot[kept]
    place = slot - np.searchsorted(graph.frozen_slots, slot)
    rows = _rows(graph.num_nodes, graph.num_slots, more)
    return _batch(graph, [*rows, *(place[sample == index] for index in range(copies))])


def delicate(batch: NoisyBatch) -> NDArray[np.bool_]:
    """Which graphs of a batch are regular, ``[B]``, if not all are.

    All nodes then look alike, and layers that normalise divide what rounding left of their differences by itself.
    """
    ends = batch.edge_index()[0][0]
    degrees = np.bincount(ends, minlength=batch.size * batch.num_nodes).reshape(batch.size, -1)
    regular: NDArray[np.bool_] = degrees.min(axis=1) == degrees.max(axis=1)
    return regular & (not regular.all())


@lru_cache(maxsize=64)
def _rows(nodes: int, slots: int, more: int) -> tuple[IntArray, ...]:
    """Places of the edges among the slots, for each graph."""
    full = (
        int(np.ceil(_FULL * slots)) if slots <= _DENSE_SLOTS else min(slots, max(_MOST_EDGES, _EDGES_PER_NODE * nodes))
    )
    rng = np.random.default_rng(nodes)
    sparse = min(full, nodes)
    counts = [0, full, sparse // 2] if slots > _DENSE_SLOTS else [0, full, full // 2, sparse, sparse // 2]
    counts += [*(full * rng.random(more)).astype(int).tolist()]
    return tuple(
        np.sort(rng.choice(slots, count, replace=False)) if count else np.empty(0, dtype=np.int64) for count in counts
    )


def _batch(graph: Graph, rows: Sequence[IntArray]) -> NoisyBatch:
    """Graphs on the same nodes with edges at these places of the slots, and all frozen edges."""
    frozen = graph.frozen_edge_slots
    if graph.num_slots <= _DENSE_SLOTS:
        states = np.zeros((len(rows), graph.num_slots), dtype=np.bool_)
        for index, places in enumerate(rows):
            states[index, places] = True
        return NoisyBatch(graph.num_nodes, len(rows), graph.node_features, graph.slots, frozen, states, None)
    if len(graph.frozen_slots):  # else a place is a slot, and the list of all slots of a large graph is not built
        rows = [graph.slots[places] for places in rows]
    everything = [np.sort(np.concatenate([slots, frozen])) for slots in rows]
    sample = np.repeat(np.arange(len(rows)), [len(slots) for slots in everything])
    lists = SlotLists(sample, np.concatenate(everything))
    return NoisyBatch(graph.num_nodes, len(rows), graph.node_features, None, frozen, None, lists)


class ShortcutDisagrees(InputError):
    """A faster way to a model gives other answers than the model itself: a run then starts over with the model itself.

    It becomes a user's matter only outside of a run.
    """

    def __init__(self, remark: str) -> None:
        super().__init__(remark)
        self.remark = remark

    def __str__(self) -> str:
        return f"the model must be asked without a shortcut: {self.remark} (set model.dense_twin = False)"


class Guard:
    """The checks of one base classifier."""

    def __init__(self, classifier: Classifier, *, trust_features: bool = False) -> None:
        self.classifier, self._trust_features = classifier, trust_features
        self._tried = set[bytes]()

    def check(self, graphs: Sequence[Graph], noise: EdgeNoise, *, first: int | None = None) -> None:
        """Refuse graphs or a model for which certificates would be false, or asking would fail."""
        self.check_features(graphs)
        self.check_model(graphs, noise, first=first)

    def check_model(self, graphs: Sequence[Graph], noise: EdgeNoise, *, first: int | None = None) -> None:
        """The part of :meth:`check` that is about the model.

        It is tried on every graph: on noisy copies, and on deliberately different graphs on the same nodes; on a graph of usual
        size in double precision too, where a dependence on other graphs of the batch cannot hide behind rounding.

        Args:
            graphs: Those to try it on.
            noise: Random changes such as the model will meet.
            first: Number of graphs to try the model on now (default: all). The others are :meth:`untried`: :meth:`try_on` must be
                called for each before its votes count.
        """
        try:
            self._try_model(graphs, noise, first)
        except ShortcutDisagrees as error:
            self.classifier.take_no_shortcuts(error.remark)
            self._try_model(graphs, noise, first)

    def _try_model(self, graphs: Sequence[Graph], noise: EdgeNoise, first: int | None) -> None:
        self.classifier.begin()
        self._tried.clear()
        distinct = {_identity(graph): place for place, graph in reversed(list(enumerate(graphs)))}
        for place in distinct.values():  # whether shortcuts are taken, anywhere in the run
            self.classifier.suited(graphs[place], noise)
        for known, place in reversed(distinct.items()):
            classifier = self.classifier.suited(graphs[place], noise)
            classifier.prepare()
            classifier.check_memory(graphs[place], noise)
            if first is None or len(self._tried) < first:
                classifier.probe(graphs[place], noise)
                self._tried.add(known)
        if graphs:
            sizes = sorted((graph.num_nodes, place) for place, graph in enumerate(graphs))
            usual = graphs[sizes[len(sizes) // 2][1]]
            self.classifier.suited(usual, noise).probe_finely(usual, noise)

    def untried(self, graph: Graph) -> bool:
        """Whether the model has not been tried on the graph since :meth:`check` was called last."""
        return _identity(graph) not in self._tried

    def try_on(self, graph: Graph, noise: EdgeNoise) -> None:
        """Try the model on a graph, and refuse it as :meth:`check` does; in any process."""
        classifier = self.classifier.suited(graph, noise)
        classifier.prepare()
        classifier.probe(graph, noise)

    def passed(self, graph: Graph) -> None:
        """Remember that :meth:`try_on` did not refuse the graph."""
        self._tried.add(_identity(graph))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tried": set()}  # whoever gets a copy does not ask what was tried

    def check_features(self, graphs: Sequence[Graph]) -> None:
        """Refuse node features that know the clean edges, where the model may see them."""
        own = sum(graph.node_features is not None for graph in graphs)
        spec = getattr(getattr(self.classifier, "features", None), "spec", None)
        if spec == "own-or-degree" and 0 < own < len(graphs):
            raise InputError(
                f"node features must be there for every graph or for none; got {own} of {len(graphs)} graphs with some, and "
                'one graph has none (give it node_features, or pass features="degree" for all)'
            )
        if own and self.classifier.reads_own_features and not self._trust_features:
            from flipproof.classifiers.clean_edges import refuse_clean_edges

            refuse_clean_edges(graphs, getattr(graphs, "feature_names", ()))


def _identity(graph: Graph) -> bytes:
    """The same for equal graphs; thousands of them take less memory than the graphs."""
    features = graph.node_features
    identity = hashlib.blake2b(f"{graph.topology} {graph.label}".encode(), digest_size=16)
    if features is not None:
        identity.update(f" {features.shape} {features.dtype.str} ".encode() + features.tobytes())
    return identity.digest()
