"""The smoothed classifier: sample noisy graphs, ask the model, certify the answer. The file to read first.

    votes = the model's label on each of M noisy copies of the graph           (ask)
    certificate = label and radius that follow from the votes                  (Sampling.read)

The smoothed classifier ``g`` answers the class that the model ``f`` gives most often under the noise. ``g``
itself cannot be evaluated, only sampled; a certificate says which answer ``g`` gives, and within how many
edge flips it stays the same, except with probability alpha over the sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import DEFAULT_METHOD, Block, Votes
from flipproof.checks import checked_samples
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.defence import Defence, DefendedClassifier, Progress, Run, label_dtype
from flipproof.defences.sampling import NOISE_PARTS, Sampling, asked_again, leader
from flipproof.defences.target import Effort, SmoothedTarget
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph, as_graph, as_graphs
from flipproof.noise import BLOCK, EdgeNoise, SampleStream


@dataclass(frozen=True)
class Smoothing(Defence):
    """Ask about noisy copies of the graph, and let them vote."""

    name = "smoothing"
    evidence = Votes
    request = Sampling

    noise: EdgeNoise = option(parts=NOISE_PARTS)

    def __post_init__(self) -> None:
        if not isinstance(self.noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise; got {self.noise!r} (for instance EdgeNoise(keep=0.9))")

    @property
    def trial_noise(self) -> EdgeNoise:
        return self.noise

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Sampling, run: Run = map) -> Votes:
        """The votes on noisy copies, block by block."""
        samples, seed, starts = request.samples, request.seed, range(0, request.samples, BLOCK)
        blocks = run(partial(self.block, classifier, graph, samples=samples, seed=seed), starts)
        labels, checksums = zip(*blocks, strict=True)
        base = classifier.classifier.suited(graph, self.noise)
        again = sum(base.recheck_count(graph, start) for start in starts)
        cast = np.concatenate(labels), graph, self.noise, classifier.num_classes, seed, checksums
        return Votes(*cast, compared=min(samples, again))

    def block(self, classifier: DefendedClassifier, graph: Graph, start: int, *, samples: int, seed: int) -> Block:
        """Votes and checksum of one block: samples ``start..start+1023``, as far as they are below ``samples``.

        Batches are always cut at the same indices, so floating point sees the same batches whatever ``samples`` is and
        wherever the block is computed. The checksum always covers the flips of the whole block.
        """
        stream = SampleStream(graph, self.noise, seed=seed)
        base = classifier.classifier.suited(graph, self.noise)
        base.prepare()
        size = base.batch_size(graph, self.noise)
        checksum, labels, contents = stream.new_checksum(), [], []
        again = asked_again(graph, base, start, samples=samples, seed=seed)
        for begin in range(start, start + BLOCK, size):
            batch, flips = stream.batch(begin, begin + size)
            checksum.update(flips)
            if stream.small:
                contents.append(flips)
            if begin < samples:
                labels.append(base.labels(batch))
                here = again[(begin <= again) & (again < begin + size)] - begin
                if len(here):
                    base.recheck(batch, labels[-1], here)
        if stream.small:
            stream.remember(start, b"".join(contents))
        kept = np.concatenate(labels)[: samples - start]
        return kept.astype(label_dtype(classifier.num_classes)), checksum.hexdigest()

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        classifier.check([graph])
        return leader(self.ask(classifier, graph, Sampling(1_000, seed=None)), 0.001)

    def made(self, evidence: Any, num_classes: int) -> bool:
        return super().made(evidence, num_classes) and evidence.noise == self.noise

    def best(self, graph: Graph, request: Sampling, num_classes: int) -> Certificate | None:
        return request.unanimous(graph, self.noise, num_classes)

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> SmoothedTarget:
        return SmoothedTarget(classifier, graph, self.noise, effort)


class SmoothedClassifier(DefendedClassifier):
    """A graph classifier made robust by edge noise; wraps any model.

    Args:
        model: As the other arguments, see :class:`flipproof.defences.defence.DefendedClassifier`.
        noise: The random flips.
        features: Node features, computed on every *noisy* graph.

    >>> def has_triangle(graphs):
    ...     return [int(np.trace(np.linalg.matrix_power(g.adjacency(), 3)) > 0) for g in graphs]
    >>> smooth = SmoothedClassifier(has_triangle, EdgeNoise(keep=0.9), num_classes=2)
    >>> complete = Graph(4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    >>> print(smooth.certify(complete, samples=1000, seed=0, method="votes"))
    class 1, certified against any 1 edge flip (votes, alpha 0.001, 1,000 samples, share of votes at least 0.9492)
    """

    defence_name = "smoothing"

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
        edge_features: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        super().__init__(
            model,
            Smoothing(noise),
            num_classes=num_classes,
            features=features,
            convention=convention,
            trust_features=trust_features,
            memory=memory,
            edge_features=edge_features,
        )

    @property
    def noise(self) -> EdgeNoise:
        """The random flips."""
        return self.defence.trial_noise

    def __repr__(self) -> str:
        return f"SmoothedClassifier({type(self.model).__name__}, {self.noise}, num_classes={self.num_classes})"

    def certify(
        self,
        graph: Any,
        *,
        samples: int = 10_000,
        alpha: float = 0.001,
        method: str = DEFAULT_METHOD,
        seed: int | None = None,
    ) -> Certificate:
        """The smoothed prediction for a graph, and the number of edge flips it withstands.

        With probability at least ``1 - alpha`` over the sampling: the certificate abstains, or its label is the smoothed
        classifier's answer for this graph and for every graph at most ``radius`` edge flips away.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            samples: Noisy copies ``M``.
            alpha: Failure probability.
            method: ``"influence"``, ``"votes"`` or ``"paper"``.
            seed: Seed of the noise; ``None`` for a fresh one, which no attacker can choose graphs against.
        """
        return self._certificate(as_graph(graph), Sampling(samples, alpha, False, method, seed))

    def certify_all(
        self,
        graphs: Iterable[Any],
        *,
        samples: int = 10_000,
        alpha: float = 0.001,
        simultaneous: bool = False,
        method: str = DEFAULT_METHOD,
        seed: int | None = None,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[Certificate]:
        """A certificate for each graph, in their order; see :meth:`certify` and :meth:`DefendedClassifier.certify_all`.

        ``simultaneous`` lets alpha hold for all graphs at once instead of for each by itself.
        """
        members = as_graphs(graphs)
        request = Sampling(samples, alpha, simultaneous, method, seed, graphs=max(1, len(members)))
        return self._certificates(members, request, progress=progress, workers=workers, engine=engine)

    def predict(self, graph: Any, *, samples: int = 1_000, alpha: float = 0.001, seed: int | None = None) -> int | None:
        """The smoothed prediction, or ``None`` (abstain) where the two top classes are too close to tell.

        A class other than the smoothed classifier's answer is returned with probability at most ``alpha``.
        """
        return self.predict_all([as_graph(graph)], samples=samples, alpha=alpha, seed=seed)[0]

    def predict_all(
        self,
        graphs: Iterable[Any],
        *,
        samples: int = 1_000,
        alpha: float = 0.001,
        seed: int | None = None,
        progress: Progress = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[int | None]:
        """The smoothed prediction for each graph, in their order; see :meth:`predict` and :meth:`certify_all`."""
        members, request = as_graphs(graphs), Sampling(checked_samples(samples), alpha=alpha, seed=seed)
        where: dict[str, Any] = {"progress": progress, "workers": workers, "engine": engine}
        if self.classifier.edge_blind:
            return self.effective().predict_all(members, **where)
        evidence = [votes for votes, _ in self._asked(members, request, **where, read=False)]
        return [leader(votes, alpha) for votes in evidence if isinstance(votes, Votes)]

    def sample(self, graph: Any, *, samples: int = 10_000, seed: int | None = None) -> Votes:
        """The model's votes on noisy copies of a graph. Keep them: :func:`certify_votes` reads certificates off them."""
        votes: Votes = self._evidence(as_graph(graph), Sampling(samples, seed=seed))
        return votes
