"""The smoothed classifier: sample noisy graphs, ask the model, certify the answer. The file to read first.

    votes = the model's label on each of M noisy copies of the graph           (sample)
    certificate = label and radius that follow from the votes                  (certify)

The smoothed classifier ``g`` answers the class that the model ``f`` gives most often under the noise. ``g``
itself cannot be evaluated, only sampled; a certificate says which answer ``g`` gives, and within how many
edge flips it stays the same, except with probability alpha over the sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flipproof.bounds import checked_alpha, label_pvalue
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.certify import DEFAULT_METHOD
from flipproof.certificates.edge_blind import edge_blind_certificate
from flipproof.certificates.sequential import Plan, Sequential
from flipproof.classifiers import DEFAULT_MEMORY, as_classifier
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph, as_graphs
from flipproof.noise import BLOCK, EdgeNoise, SampleStream, checked_seed
from flipproof.progress import watched
from flipproof.sampling import BlockTask, Engine, Task, ThisProcess, sample_graphs
from flipproof.votes import Block, Votes, checked_samples

__all__ = ["Engine", "SampleWork", "SmoothedClassifier"]


class SmoothedClassifier:
    """A graph classifier made robust by edge noise; wraps any model.

    Args:
        model: A torch module with ``forward(x, edge_index, batch)`` (PyG's convention), ``forward(data)`` or
            ``forward(x, adj, mask)`` (dense), returning logits ``[graphs, num_classes]``; or any callable
            from a list of :class:`Graph` to labels.
        noise: The random flips.
        num_classes: Number of classes, also those that never get a vote; by default ``model.num_classes``.
        features: Node features, computed on every *noisy* graph: ``None`` for the graph's own (which must
            not depend on edges), ``"degree"``, ``"one-hot-degree"``, ``"constant"``, a function from a Graph
            to an array ``[n, d]``, a PyG transform, or several in a list.
        convention: ``"pyg"``, ``"data"`` or ``"dense"``, where the module's ``forward`` does not tell.
        trust_features: Accept node features that look like the clean graph's degrees.
        memory: Bytes that noisy copies of a graph and the model's work on them may take at once, whatever the number of
            samples. Batches are cut to fit; a graph of which not even one copy fits is refused.

    >>> def has_triangle(graphs):
    ...     return [int(np.trace(np.linalg.matrix_power(g.adjacency(), 3)) > 0) for g in graphs]
    >>> smooth = SmoothedClassifier(has_triangle, EdgeNoise(keep=0.9), num_classes=2)
    >>> complete = Graph(4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    >>> print(smooth.certify(complete, samples=1000, seed=0, method="votes"))
    class 1, certified against any 1 edge flip (votes, alpha 0.001, 1,000 samples, share of votes at least 0.9492)
    """

    def __init__(
        self,
        model: Any,
        noise: EdgeNoise,
        *,
        num_classes: int | None = None,
        features: Any = None,
        convention: str | None = None,
        trust_features: bool = False,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        if not isinstance(noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise; got {noise!r} (for instance EdgeNoise(keep=0.9))")
        num_classes = getattr(model, "num_classes", None) if num_classes is None else num_classes
        if isinstance(num_classes, bool) or not isinstance(num_classes, (int, np.integer)) or num_classes < 2:
            raise InputError(
                f"num_classes must be an integer of at least 2; got {num_classes!r} (count declared classes)"
            )
        self.model, self.noise, self.num_classes = model, noise, int(num_classes)
        if isinstance(memory, bool) or not isinstance(memory, (int, np.integer)) or memory < 2**20:
            raise InputError(f"memory must be a number of bytes, at least 2**20; got {memory!r} (for instance 2**30)")
        self.classifier = as_classifier(
            model, num_classes=self.num_classes, features=features, convention=convention, memory=int(memory)
        )
        self._trust_features = trust_features
        self._probed: set[tuple[Any, ...]] = set()

    def __repr__(self) -> str:
        return f"SmoothedClassifier({type(self.model).__name__}, {self.noise}, num_classes={self.num_classes})"

    # ---- one graph ----

    def certify(
        self,
        graph: Any,
        *,
        samples: int | str | Sequential = 10_000,
        alpha: float = 0.001,
        seed: int | None = None,
        method: str = DEFAULT_METHOD,
    ) -> Certificate:
        """The smoothed prediction for a graph, and the number of edge flips it withstands.

        With probability at least ``1 - alpha`` over the sampling: the certificate abstains, or its label is
        the smoothed classifier's answer for this graph and for every graph at most ``radius`` edge flips
        away.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            samples: Noisy copies ``M``. With ``"auto"``, or a :class:`Sequential`, as many as the answer needs; the guarantee is
                the same.
            alpha: Failure probability.
            seed: Of the noise; ``None`` for a fresh secret one (an attacker who knows the seed can choose
                graphs against it).
            method: ``"influence"``, ``"votes"`` or ``"paper"``.
        """
        return self.certify_all([graph], samples=samples, alpha=alpha, seed=seed, method=method)[0]

    def predict(self, graph: Any, *, samples: int = 1_000, alpha: float = 0.001, seed: int | None = None) -> int | None:
        """The smoothed prediction, or ``None`` (abstain) where the two top classes are too close to tell.

        A class other than the smoothed classifier's answer is returned with probability at most ``alpha``.
        """
        checked_alpha(alpha)
        if self.classifier.edge_blind:
            return self.certify_all([graph])[0].label
        votes = self.sample(graph, samples=checked_samples(samples), seed=seed)
        top, second = (int(index) for index in np.argsort(-votes.counts, kind="stable")[:2])
        level = checked_alpha(alpha, samples=len(votes), discrepancy=votes.stream().discrepancy)
        return top if label_pvalue(votes.counts[top], votes.counts[second]) <= level else None

    def sample(
        self,
        graph: Any,
        *,
        samples: int | str | Sequential = 10_000,
        seed: int | None = None,
        alpha: float = 0.001,
        method: str = DEFAULT_METHOD,
    ) -> Votes:
        """The model's votes on noisy copies of a graph. Keep them: :func:`certify_votes` reads certificates off them.

        ``alpha`` and ``method`` matter with ``samples="auto"`` only: they tell when there are enough.
        """
        plan, seed = Plan.of(samples, alpha=alpha, method=method), checked_seed(seed)
        graph = as_graph(graph)
        self.check([graph])
        ((_, votes, _),) = self.sample_all({0: graph}, plan, seed=seed, certified=False)
        return votes

    def sample_block(self, graph: Graph, start: int, *, samples: int, seed: int) -> Block:
        """Votes and checksum of one block: samples ``start..start+1023``, as far as they are below ``samples``.

        Batches are always cut at the same indices, so floating point sees the same batches whatever
        ``samples`` is and wherever the block is computed. The checksum always covers the flips of the whole
        block.
        """
        stream = SampleStream(graph, self.noise, seed=seed)
        classifier = self.classifier.suited(graph, self.noise)
        classifier.prepare()
        size = classifier.batch_size(graph, self.noise)
        checksum, labels = stream.new_checksum(), []
        for begin in range(start, start + BLOCK, size):
            batch, flips = stream.batch(begin, begin + size)
            checksum.update(flips)
            if begin < samples:
                labels.append(classifier.labels(batch))
        kept = np.concatenate(labels)[: samples - start]
        return kept.astype(np.uint8 if self.num_classes <= 256 else np.uint32), checksum.hexdigest()

    def votes_of(self, graph: Graph, blocks: Iterable[Block], *, seed: int, looks: tuple[int, ...] = ()) -> Votes:
        """The votes of a graph from the blocks that :meth:`sample_block` returned, in order."""
        labels, checksums = zip(*blocks, strict=True)
        return Votes(np.concatenate(labels), graph, self.noise, self.num_classes, seed, checksums, looks=looks)

    # ---- many graphs ----

    def certify_all(
        self,
        graphs: Iterable[Any],
        *,
        samples: int | str | Sequential = 10_000,
        alpha: float = 0.001,
        seed: int | None = None,
        method: str = DEFAULT_METHOD,
        simultaneous: bool = False,
        progress: bool | Callable[[int, int], None] = False,
        engine: Engine | None = None,
    ) -> list[Certificate]:
        """A certificate for each graph, in their order.

        ``alpha`` holds for each graph by itself: of ``G`` certificates up to ``alpha * G`` may be wrong in
        expectation. With ``simultaneous=True`` it holds for all at once: each is made at ``alpha / G``. An ``engine`` of
        :mod:`flipproof.engines` samples on all cores or on a cluster, with the same result. ``progress=True`` shows a bar on
        stderr; a function is called with the number of graphs done and their total.
        """
        given, seed = as_graphs(graphs), checked_seed(seed)
        plan = Plan.of(samples, alpha=checked_alpha(alpha) / (max(1, len(given)) if simultaneous else 1), method=method)
        self.check(given)
        if self.classifier.edge_blind:
            return [self._certify_edge_blind(graph) for graph in given]
        certificates: dict[int, Certificate] = {}
        with watched(progress, "certifying", len(given), unit="graphs") as advance:
            for index, _, certificate in self.sample_all(dict(enumerate(given)), plan, seed=seed, engine=engine):
                assert certificate is not None
                certificates[index] = certificate
                advance(1)
        return [certificates[index] for index in range(len(given))]

    def sample_all(
        self,
        graphs: Mapping[int, Graph],
        plan: Plan,
        *,
        seed: int,
        engine: Engine | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, Votes, Certificate | None]]:
        """Number, votes and certificate of graphs that :meth:`check` has passed, as they are finished.

        ``options`` are those of :func:`flipproof.sampling.sample_graphs`.
        """
        return sample_graphs(
            options.pop("work", None) or SampleWork(self, plan, seed),
            graphs,
            plan,
            votes_of=lambda graph, blocks: self.votes_of(graph, blocks, seed=seed, looks=plan.schedule),
            engine=engine or ThisProcess(),
            **options,
        )

    def _certify_edge_blind(self, graph: Graph) -> Certificate:
        """Asked without any edge, so that the answer is plainly the same for every graph on these nodes."""
        return edge_blind_certificate(
            self.classifier.label_of(graph.replaced(edges=())),
            self.noise,
            num_classes=self.num_classes,
            max_adds=graph.max_adds,
            max_removes=graph.max_removes,
        )

    def check(self, graphs: list[Graph]) -> None:
        """Refuse, before any long work, graphs or a model for which certificates would be false or sampling fail.

        The model is tried on a few noisy copies of the first graph of every kind (width and type of its features).
        Node features count as degrees only if they agree on all the graphs: check a data set as a whole.
        """
        own = [graph for graph in graphs if graph.node_features is not None]
        if own and self.classifier.reads_own_features and not self._trust_features:
            from flipproof.features import refuse_clean_degrees

            refuse_clean_degrees(own)
        for graph in graphs:
            classifier = self.classifier.suited(graph, self.noise)
            classifier.prepare()
            classifier.batch_size(graph, self.noise)
            features = graph.node_features
            kind = (classifier.path, *(() if features is None else (features.shape[1], features.dtype)))
            if kind not in self._probed:
                classifier.probe(SampleStream(graph, self.noise, seed=0))
                self._probed.add(kind)


@dataclass(frozen=True, eq=False)
class SampleWork:
    """What a worker does: samples a block, or looks whether the votes are enough."""

    smooth: SmoothedClassifier
    plan: Plan
    seed: int

    def __call__(self, task: Task) -> Block | Certificate | None:
        if isinstance(task, BlockTask):
            return self.smooth.sample_block(task.graph, task.start, samples=self.plan.most, seed=self.seed)
        return self.plan.look(task.votes)
