"""What smoothing asks of a base classifier: a label for every graph of a noisy batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.classifiers.guard import FLOAT32, ROUNDING, Arithmetic, Precise, agree, delicate, probe_batch, tied
from flipproof.errors import InputError
from flipproof.graphs import Graph, checked_features
from flipproof.noise import EdgeNoise, FeatureNoise, NoisyBatch, SampleStream
from flipproof.progress import note

if TYPE_CHECKING:
    from flipproof.classifiers.features import NodeFeatures

DEFAULT_MEMORY = 2**30
"""Bytes that the noisy copies of a graph and the model's work on them may take at once."""

OTHER_ANSWERS = "gives other answers"
"""What a run's record says of a shortcut that is not taken."""

_TOLERANCE = 1e-3  # between two ways to ask the same model
_FINE = 1e-6  # the same in double precision
_MANY_NODES = 2_000
_EDGES_PER_NODE = 16  # reckoned with; a batch of denser graphs takes more memory, up to what is allowed
MORE_PROBES = 24  # random graphs on which a model is tried in addition where only labels tell
_BYTES_PER_FEATURE = 24  # under noise, for the draws and the array
_COARSE = 64  # roundings, for networks in coarser arithmetic


def shown_bytes(count: float) -> str:
    """Bytes for people: ``1.5 GiB``."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def assumed_edges(num_nodes: int, noise: EdgeNoise, per_node: int) -> float:
    """Edges that a noisy copy is assumed to have: no function of edges, since it decides how the model is run."""
    slots = num_nodes * (num_nodes - 1) // 2
    return min(slots, min(slots, per_node * num_nodes) * (1 - noise.p_remove) + slots * noise.p_add)


Subsets = list[tuple[str, NDArray[np.int64]]]


def subsets(size: int) -> Subsets:
    """The graphs of a batch to ask about again, and how, in words."""
    order = np.arange(size)
    halves = [("in another batch", half) for half in (order[1::2][::-1], order[::2])]
    return halves + [("alone", order[[index]]) for index in (1, 2, size - 1)]


def _depends_on_batch(how: str) -> InputError:
    return InputError(
        "the model must be a function of the noisy graph alone; it gave different answers about the same graphs in a batch and "
        f"{how}; certificates would be false (batch statistics, a choice among tied nodes, dropout or other randomness, or a "
        "cache? a function that asks about one graph at a time can be certified in its place)"
    )


class Probed(NamedTuple):
    """Graphs on which a model was tried, what it said of them together, and which of them are only compared roughly."""

    batch: NoisyBatch
    scores: NDArray[Any]
    delicate: NDArray[np.bool_]


class Classifier(ABC):
    """A base classifier ``f``. Must be a function of the noisy graph alone.

    Attributes:
        num_classes: Declared classes ``C``.
        path: How batches reach the model: ``dense``, ``compiled``, ``compiled twin``, ``message passing`` or ``callable``.
        remark: Why no faster path is taken, if a model is expected to have one.
        memory: Bytes that a batch and the model's work on it may take.
        reads_own_features: Whether the model may see the graph's own ``node_features``, which no noise reaches.
        edge_blind: Whether the model cannot see edges, so that its answer needs no noise and no samples.
        unit_roundoff: Unit roundoff of the model's arithmetic.
        more_probes: Additional random graphs on which the model is tried: more are needed where only labels tell.
        shortcuts: Whether faster ways to the model may be taken; no longer, once one of them gave other answers.
        forks: Whether the model survives a fork of the process; one on a GPU does not.
        feature_noise: Noise on the graph's own features, which then differ between samples; ``None`` for none.
    """

    num_classes: int
    path: str
    remark: str = ""
    memory: int = DEFAULT_MEMORY
    reads_own_features: bool = True
    edge_blind: bool = False
    unit_roundoff: float = FLOAT32
    more_probes: int = 0
    shortcuts: bool = True
    forks: bool = True
    feature_noise: FeatureNoise | None = None
    _remedy = "raise memory, or take a noise that adds fewer edges"
    _other_company = "batch statistics, or a cache?"

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        """The classifier itself, or another way to the same model that is faster for such graphs under this noise.

        The choice depends on the number of nodes and their features (on nothing but the shape of features under noise), never on
        edges: what an attacker can change must not choose how the model is run. The same holds for :meth:`batch_size`.
        """
        return self

    def take_no_shortcuts(self, remark: str) -> None:
        """Ask the model itself from now on, about every graph, and say so in one line."""
        self.shortcuts, self.remark = False, remark
        note(f"the model itself is asked about every graph of this run, which takes longer: {remark}")

    def batch_size(self, graph: Graph, noise: EdgeNoise) -> int:
        """Samples that the model sees at once: a divisor of the block, fixed by nodes, noise, model and memory.

        Floating point may round differently in batches of another size: the same samples always travel together.
        """
        features = graph.node_features
        key = graph.num_nodes, None if features is None else features.shape[1], noise, self.memory
        sizes: dict[Any, int] = self.__dict__.setdefault("_sizes", {})  # needed for every block
        if key not in sizes:
            sizes[key] = self._fitting_size(graph, noise)
        return sizes[key]

    def _fitting_size(self, graph: Graph, noise: EdgeNoise) -> int:
        edges = assumed_edges(graph.num_nodes, noise, _EDGES_PER_NODE)
        size = self.wanted_size(graph, edges)
        empty = graph.replaced(edges=(), frozen=())
        while (needed := self._needed(empty, noise, edges, size)) > self.memory and size > 1:
            size //= 2
        if needed > self.memory:
            raise InputError(
                f"one noisy copy of a graph of {graph.num_nodes:,} nodes takes about {shown_bytes(needed)} ({self.path}); "
                f"memory allows {shown_bytes(self.memory)} ({self._remedy})"
            )
        return size

    def check_memory(self, graph: Graph, noise: EdgeNoise) -> None:
        """Refuse a graph with so many edges that a batch of :meth:`batch_size` does not fit into the memory."""
        edges = graph.num_edges * (1 - noise.p_remove) + graph.max_adds * noise.p_add
        needed = self._needed(graph, noise, edges, self.batch_size(graph, noise))
        if needed > self.memory:
            raise InputError(
                f"noisy copies of a graph of {graph.num_nodes:,} nodes and {graph.num_edges:,} edges take about "
                f"{shown_bytes(needed)} at a time ({self.path}); memory allows {shown_bytes(self.memory)} ({self._remedy})"
            )

    def _needed(self, graph: Graph, noise: EdgeNoise, edges: float, size: int) -> float:
        stream = SampleStream(graph, noise, seed=0)
        of_features = 0 if self.feature_noise is None or graph.node_features is None else graph.node_features.size
        drawn = stream.bytes_per_sample + _BYTES_PER_FEATURE * of_features
        return stream.bytes_at_rest + size * (drawn + self.bytes_each(graph, edges))

    def begin(self) -> None:
        """Called before a certification: forget what is known of an earlier state of the model."""
        self.__dict__.pop("_sizes", None)

    def wanted_size(self, graph: Graph, edges: float) -> int:
        """Samples that the model would best see at once, for graphs with these nodes and ``edges``; a power of 2."""
        return 256

    def bytes_each(self, graph: Graph, edges: float) -> float:
        """Bytes that the model's work on one sample with ``edges`` takes, beside making the sample."""
        return 0.0

    @abstractmethod
    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        """What the model says of each graph, unchecked: logits ``[B, C]``, or labels ``[B]`` from a black box."""

    def labels(self, batch: NoisyBatch) -> NDArray[np.int64]:
        """The label of each graph of the batch, ``[B]``; equal logits go to the smaller label."""
        return self._checked_labels(self.scores(batch), batch.size)

    def said(self, batch: NoisyBatch) -> NDArray[np.uint8]:
        """Of each graph and class 2 if it is the answer, 1 if it could be were rounding otherwise, else 0, ``[B, C]``.

        The label of a graph can depend on rounding, and rounding on the batch that it is in: a class whose logit is within
        rounding of the highest could be the answer elsewhere. A black box names one class.
        """
        scores = self.scores(batch)
        answer = self._checked_labels(scores, batch.size)[:, None] == np.arange(self.num_classes)
        marks: NDArray[np.uint8] = 2 * answer.astype(np.uint8)
        if scores.ndim == 2:
            highest = np.where(answer, scores, -np.inf).max(axis=1, keepdims=True)
            share = max(ROUNDING, _COARSE * self.unit_roundoff)
            with np.errstate(invalid="ignore"):  # of infinite logits
                near = scores >= highest - share * np.maximum(1.0, np.abs(highest))
            marks |= (near & ~answer).astype(np.uint8)
        return marks

    def prepare(self) -> None:  # noqa: B027  (nothing to refuse in a black box)
        """Refuse a model whose state makes certificates false; called before every sampling."""

    def probe(self, graph: Graph, noise: EdgeNoise, chosen: Callable[[int], Subsets] = subsets) -> Probed:
        """Try the model on deliberately different graphs, together and alone, and refuse it if the answers differ."""
        under_noise = (
            None if self.edge_blind else self.feature_noise
        )  # what sees no edge answers alike about like features
        batch = probe_batch(graph, noise, MORE_PROBES if self.edge_blind else self.more_probes, under_noise)
        together = self._tried(batch, graph)
        if self.edge_blind:
            self._refuse_sight(together, graph.num_nodes)
        elif together.ndim == 2 and len(np.unique(together, axis=0)) < batch.size // 2:  # such scores tell little
            batch = probe_batch(graph, noise, MORE_PROBES, under_noise)
            together = self._tried(batch, graph)
        tried = Probed(batch, together, delicate(batch))
        self._refuse_company(tried, graph, chosen(batch.size))
        return tried

    def _refuse_company(self, tried: Probed, graph: Graph, chosen: Subsets) -> None:
        """Refuse a model that answers otherwise about graphs of a batch if these subsets of them are in a batch of their own."""
        for how, subset in chosen:
            if not self._agree(tried, self._tried(tried.batch.only(subset), graph), subset):
                if self._only_rounds(tried):
                    break
                raise _depends_on_batch(how)

    def _refuse_sight(self, scores: NDArray[Any], nodes: int) -> None:
        """Refuse a model that claims to see no edge, if its scores of graphs on the same nodes differ."""
        first = np.repeat(scores[:1], len(scores), axis=0)
        if not agree(first, scores, tolerance=_FINE, arithmetic=self.arithmetic(nodes)):
            raise InputError(
                "the model says that it sees no edge (edge_blind), and must give the same answer about the same nodes whatever "
                "the edges are; its answers differ, and certificates at every radius would be false (do not read edges in "
                "forward, or set edge_blind = False)"
            )

    def arithmetic(self, nodes: int) -> Arithmetic:
        """How the model computes, on graphs of this size."""
        return Arithmetic.of_sums([nodes], self.unit_roundoff)

    def _agree(
        self, tried: Probed, scores: NDArray[Any], subset: NDArray[np.int64], tolerance: float = _TOLERANCE
    ) -> bool:
        """Whether the scores of a subset among itself are those that its graphs have in the whole batch."""
        batch, together, loosely = tried
        first, rough, arithmetic = together[subset], loosely[subset], self.arithmetic(batch.num_nodes)
        return agree(first, scores, tolerance=tolerance, arithmetic=arithmetic, among=together, delicate=rough)

    def finer(self) -> Classifier | None:
        """The same model in double precision, which tells rounding from other differences; ``None`` where there is none."""
        return None

    def _only_rounds(self, tried: Probed) -> bool:
        """Whether answers that differ in another batch do so by rounding: whether the differences vanish in double precision."""
        batch, together, loosely = tried
        order, finer = np.arange(batch.size), self.finer()
        if finer is None or loosely.all():
            return False
        apart = False  # whether graphs differ that are not delicate
        try:
            precise = Precise(together, finer.scores(batch), loosely)
            for subset in (*(subset for _, subset in subsets(batch.size)), *order[:, None]):
                single, plain = self.scores(batch.only(subset)), ~loosely[subset]
                precise.add(subset, single, finer.scores(batch.only(subset)))
                if not precise.only_rounding():
                    return False
                apart |= not self._agree(tried, single[plain], subset[plain])
        except Exception:  # whatever a user's module makes of double precision, it is not shown to round only
            return False
        if apart and precise.usual() and not precise.harmless():
            raise InputError(
                "the model's scores are the small difference of large numbers, and rounding in single precision could turn its "
                "answers; certificates would be false (certify it in double precision, model.double(), or train it again with "
                "weight decay)"
            )
        return not apart or precise.usual()

    def probe_finely(self, graph: Graph, noise: EdgeNoise) -> None:
        """Try the model in double precision, where it has one: a dependence on the batch that rounding hides shows there."""
        finer = self.finer()
        if finer is None:
            return
        batch = probe_batch(graph, noise, self.more_probes, self.feature_noise)
        if graph.num_nodes > _MANY_NODES:  # numbers of twice the size: half as many graphs
            batch = batch.only(np.arange(0, batch.size, 2))
        try:
            tried = Probed(batch, finer.scores(batch), delicate(batch))
            answers = [(how, subset, finer.scores(batch.only(subset))) for how, subset in subsets(batch.size)]
        except Exception:  # a module without double precision has been compared as it is
            return
        for how, subset, scores in answers:
            if not self._agree(tried, scores, subset, _FINE):
                raise _depends_on_batch(how)

    def recheck_count(self, graph: Graph, start: int) -> int:
        """Number of samples of the graph's block from ``start`` on that are asked about again."""
        return 1

    def recheck(self, batch: NoisyBatch, labels: NDArray[np.int64], chosen: NDArray[np.int64]) -> int:
        """Compare samples of a batch with the answer to each alone; refuse the model if they differ but by a tie.

        Returns:
            Of a shortcut, about how many of the samples the model itself answers otherwise, beyond rounding; else 0.
        """
        for index in chosen:
            scores = self.scores(batch.only(np.array([index])))
            if int(self._checked_labels(scores, 1)[0]) == labels[index]:
                continue
            if scores.ndim == 2 and self._is_tie(batch, index, int(labels[index]), scores):
                continue
            raise InputError(
                f"the model answered class {labels[index]} about a noisy graph among others and another class about the same "
                f"graph alone: it is not a function of the graph alone, and certificates would be false ({self._other_company})"
            )
        return 0

    def _is_tie(self, batch: NoisyBatch, index: int, label: int, alone: NDArray[Any]) -> bool:
        """Whether rounding explains that a graph of a batch got another answer alone; if in doubt, double precision tells."""
        together, subset = self.scores(batch), np.array([index])
        if tied(together, self.arithmetic(batch.num_nodes))[index]:
            return True
        finer = self.finer()
        if finer is None or together[index].argmax() != label:
            return False
        try:
            precise = Precise(together[subset], finer.scores(batch)[subset])
            precise.add(np.array([0]), alone, finer.scores(batch.only(subset)))
        except Exception:  # as above
            return False
        return precise.only_rounding()

    def label_of(self, graph: Graph) -> int:
        """The model's answer on the graph as it is, without noise."""
        still = EdgeNoise(add=0, remove=0)
        batch = SampleStream(graph, still, seed=0).batch(0, 1)[0]
        return int(self.suited(graph, still).labels(batch)[0])

    def _tried(self, batch: NoisyBatch, graph: Graph) -> NDArray[Any]:
        """The model's answers, or one sentence about what is wrong with them."""
        try:
            scores = self.scores(batch)
        except InputError:
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")
            raise InputError(
                f"the model failed on noisy copies of a graph of {graph.num_nodes} nodes "
                f"({type(error).__name__}: {reason}); expected it to take {self.expectation(graph)} "
                "(check the features and the model's input width)"
            ) from error
        self._checked_labels(scores, batch.size)
        return scores

    @abstractmethod
    def expectation(self, graph: Graph) -> str:
        """What the model is called with, in words, for error messages."""

    def _checked_labels(self, scores: NDArray[Any], size: int) -> NDArray[np.int64]:
        if scores.shape != (size, self.num_classes):
            raise InputError(
                f"the model must return logits [graphs, num_classes] = [{size}, {self.num_classes}]; got shape "
                f"{list(scores.shape)} (check num_classes, and that the model pools nodes into one row per graph, or "
                "use certify_nodes for a row per node; a binary "
                "model may also return one logit per graph)"
            )
        if np.isnan(scores).any():
            raise InputError("the model returned NaN for a noisy graph; expected numbers (check weights and features)")
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)


_BATCH = 256
_MOST_EDGES = 2**22
_BYTES_PER_EDGE = 128


def rows_of_all(batch: NoisyBatch) -> NDArray[Any]:
    """The node features of all samples one after the other, ``[size * n, d]``; not for graphs without any."""
    assert batch.node_features is not None
    rows = np.broadcast_to(batch.node_features, (batch.size, *batch.node_features.shape[-2:]))
    return np.array(rows).reshape(batch.size * batch.num_nodes, -1)


class BlackBoxClassifier(Classifier):
    """``function(graphs: list[Graph]) -> labels``: no gradients, no tensors, no assumptions."""

    path = "callable"
    more_probes = MORE_PROBES

    def __init__(
        self,
        function: Callable[[list[Graph]], Any],
        *,
        num_classes: int,
        features: NodeFeatures | None = None,
        memory: int = DEFAULT_MEMORY,
        feature_noise: FeatureNoise | None = None,
    ) -> None:
        self.function, self.num_classes, self.features, self.memory = function, num_classes, features, memory
        self.feature_noise = feature_noise
        self.reads_own_features = features is None or features.reads_own

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return min(_BATCH, 1 << int(np.log2(max(1.0, _MOST_EDGES / (edges + 1)))))

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return _BYTES_PER_EDGE * (edges + 1)

    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        return np.asarray(self.function(self.graphs(batch)))

    def label_of(self, graph: Graph) -> int:
        if graph.node is None:
            return super().label_of(graph)
        return int(self._checked_labels(np.asarray(self.function([graph.replaced(label=None, name=None)])), 1)[0])

    def graphs(self, batch: NoisyBatch) -> list[Graph]:
        """The noisy graphs as the function sees them, with the features computed on them."""
        if self.features is None:
            return batch.graphs()
        import torch

        index, owner = (torch.from_numpy(array) for array in batch.edge_index())
        own = None if batch.node_features is None else torch.from_numpy(rows_of_all(batch))
        return batch.graphs(checked_features(self.features.sparse(index, owner, own), len(owner)))

    def _checked_labels(self, scores: NDArray[Any], size: int) -> NDArray[np.int64]:
        if scores.shape != (size,):
            raise InputError(
                f"the classifier must return one label per graph, shape [{size}]; got shape "
                f"{list(scores.shape)} (it is called with a list of flipproof.Graph)"
            )
        whole = scores.dtype.kind in "iub" or (scores.dtype.kind == "f" and np.isfinite(scores).all())
        if not whole or (scores != np.floor(scores)).any():
            raise InputError(
                f"the classifier must return class numbers; got {scores.dtype} such as "
                f"{scores[:1].tolist()[0]!r} (map class names to 0, 1, 2, ...)"
            )
        outside = (scores < 0) | (scores >= self.num_classes)
        if outside.any():
            raise InputError(
                f"the classifier must return labels 0..{self.num_classes - 1}; got {scores[outside][0]} "
                "(check num_classes)"
            )
        return scores.astype(np.int64)

    def expectation(self, graph: Graph) -> str:
        return "a list of flipproof.Graph"
