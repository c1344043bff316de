"""The smoothed classifier: sample noisy graphs, ask the model, certify the answer. The file to read first.

    votes = the model's label on each of M noisy copies of the graph           (ask)
    certificate = label and radius that follow from the votes                  (Votes.certify)

The smoothed classifier ``g`` answers the class that the model ``f`` gives most often under the noise. ``g`` can only be sampled;
a certificate says which answer it gives, and within how many edge flips that stays, except with probability alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates import sampled_votes
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import DEFAULT_METHOD, METHODS, Votes
from flipproof.certificates.vote_share import checked_alpha
from flipproof.checks import checked_samples, checked_seed
from flipproof.classifiers import DEFAULT_MEMORY
from flipproof.defences.defence import Defence, DefendedClassifier, Request, Run
from flipproof.defences.node_certifier import NodeCertifier
from flipproof.defences.target import Effort, SmoothedTarget
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.fields import option
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, EdgeNoise, FeatureNoise, SampleStream, keyed_draws
from flipproof.noise.feature_law import FEATURE_NOISE, checked_feature_noise
from flipproof.noise.law import EDGE_NOISE
from flipproof.progress import Progress


@dataclass(frozen=True)
class Sampling(Request):
    """How many noisy copies of every graph are asked about, and how the votes are read."""

    samples: int = option("Number of noisy copies per graph.", 10_000, least=1)
    alpha: float = option("Failure probability of each certificate.", 0.001)
    simultaneous: bool = option("Let alpha hold for all graphs at once: each graph gets its share of it.", False)
    method: str = option("How the votes are read: influence, votes or paper.", DEFAULT_METHOD)
    seed: Any = option("Seed of the noise.", 0, kind=int)
    graphs: int | None = option(default=None, stored=None)  # those that share alpha, if it holds for all at once

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", checked_samples(self.samples))
        object.__setattr__(self, "seed", checked_seed(self.seed))
        checked_alpha(self.alpha)
        sampled_votes.checked_method(self.method)

    @property
    def level(self) -> float:
        """The failure probability of every single certificate."""
        return self.alpha / (self.graphs or 1) if self.simultaneous else self.alpha

    def fits(self, evidence: Votes) -> bool:
        return (evidence.seed, len(evidence)) == (self.seed, self.samples)

    @property
    def reading(self) -> dict[str, Any]:
        return {"alpha": self.level, "method": self.method}

    @property
    def other_readings(self) -> dict[str, dict[str, Any]]:
        return {method: {**self.reading, "method": method} for method in METHODS if method != self.method}


@dataclass(frozen=True)
class Smoothing(Defence):
    """Ask about noisy copies of the graph, and let them vote."""

    name = "smoothing"
    evidence = Votes
    request = Sampling

    noise: EdgeNoise = option(parts=EDGE_NOISE)
    feature_noise: FeatureNoise | None = option(default=None, parts=FEATURE_NOISE)

    def __post_init__(self) -> None:
        if not isinstance(self.noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise; got {self.noise!r} (for instance EdgeNoise(keep=0.9))")
        checked_feature_noise(self.feature_noise)

    @property
    def trial_noise(self) -> EdgeNoise:
        return self.noise

    def ask(self, classifier: DefendedClassifier, graph: Graph, request: Sampling, run: Run = map) -> Votes:
        starts, (base, _) = range(0, request.samples, BLOCK), classifier.suited(graph)
        blocks = run(lambda start: self.block(classifier, graph, start, request), starts)
        labels, checksums, of_features, differing = zip(*blocks, strict=True)
        cast = np.concatenate(labels), graph, self.noise, classifier.num_classes, request.seed, checksums
        compared = min(request.samples, sum(base.recheck_count(graph, start) for start in starts))
        features = self.feature_noise, () if self.feature_noise is None else of_features
        return Votes(*cast, compared, sum(differing), *features)

    def block(
        self, classifier: DefendedClassifier, graph: Graph, start: int, request: Sampling
    ) -> tuple[NDArray[Any], str, str, int]:
        """Votes and checksums of samples ``start..start+1023``: votes as far as they are wanted, checksums of all changes.

        Batches are cut at the same indices whatever ``samples`` is, so that floating point sees the same batches.
        """
        stream, (base, size) = SampleStream(graph, self.noise, seed=request.seed), classifier.suited(graph)
        base.prepare()
        wanted, labels, differing = min(BLOCK, request.samples - start), list[NDArray[np.int64]](), 0
        features = None if self.feature_noise is None else self.feature_noise.stream(graph, seed=request.seed)
        checksums = [drawn.new_checksum() for drawn in (stream, features) if drawn is not None]
        # the model is asked about some samples a second time: a guard against answers that depend on the batch
        count = min(wanted, base.recheck_count(graph, start))
        first = int(keyed_draws(f"alone {graph.topology}", request.seed, start, (1,))[0]) % wanted
        again = start + (first + np.arange(count) * (wanted // max(1, count))) % wanted
        for begin in range(start, start + BLOCK, size):
            batch, flips = stream.batch(begin, begin + size)
            checksums[0].update(flips)
            if features is not None:
                shown, changes = features.shown(begin, begin + size)
                batch = replace(batch, node_features=shown)
                checksums[1].update(changes)
            if begin < request.samples:
                labels.append(base.labels(batch))
                here = again[(begin <= again) & (again < begin + size)] - begin
                if len(here):
                    differing += base.recheck(batch, labels[-1], here)
        kept = np.concatenate(labels)[:wanted].astype(np.min_scalar_type(classifier.num_classes - 1))
        return kept, checksums[0].hexdigest(), checksums[-1].hexdigest(), differing

    def answer(self, classifier: DefendedClassifier, graph: Graph) -> int | None:
        classifier.check([graph])
        return self.ask(classifier, graph, Sampling(1_000, seed=None)).leader(0.001)

    def best(self, graph: Graph, request: Sampling, num_classes: int) -> Certificate | None:
        settings = {"alpha": request.level, "method": request.method, "seed": request.seed, "num_classes": num_classes}
        settings["feature_noise"] = self.feature_noise
        return sampled_votes.unanimous_certificate(graph, self.noise, samples=request.samples, **settings)

    def target(self, classifier: DefendedClassifier, graph: Graph, effort: Effort) -> SmoothedTarget:
        return SmoothedTarget(classifier, graph, effort)


class SmoothedClassifier(NodeCertifier):
    """A graph classifier made robust by edge noise; wraps any model.

    With ``feature_noise``, a :class:`flipproof.LabelNoise` or :class:`flipproof.BitNoise`, it is robust to changed node features
    as well, and certificates say to how many: ``docs/features.md``. ``EdgeNoise(add=0, remove=0)`` is for features alone.

    Other arguments: see :class:`flipproof.defences.defence.DefendedClassifier`; features are those of every *noisy* graph.

    >>> def has_triangle(graphs):
    ...     return [int(np.trace(np.linalg.matrix_power(g.adjacency(), 3)) > 0) for g in graphs]
    >>> smooth = SmoothedClassifier(has_triangle, EdgeNoise(keep=0.9), num_classes=2)
    >>> complete = Graph(4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    >>> print(smooth.certify(complete, samples=1000, seed=0, method="votes"))
    class 1, certified against any 1 edge flip (votes, alpha 0.001, 1,000 samples, share of votes at least 0.9492)
    """

    defence_name = "smoothing"
    defence: Smoothing

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
        feature_noise: FeatureNoise | None = None,
    ) -> None:
        options = (num_classes, features, convention, trust_features, memory, edge_features)
        super().__init__(model, Smoothing(noise, feature_noise), *options)

    @property
    def noise(self) -> EdgeNoise:
        """The random flips."""
        return self.defence.noise

    @property
    def feature_noise(self) -> FeatureNoise | None:
        """The random changes of node features, if there are any."""
        return self.defence.feature_noise

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
        classifier's answer for this graph and for every graph at most ``radius`` edge flips away. Under noise on features that
        holds for every attack of ``grid``, too.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            samples: Noisy copies ``M``.
            alpha: Failure probability.
            method: ``"influence"``, ``"votes"`` or ``"paper"``.
            seed: Seed of the noise; ``None`` for a fresh one, which no attacker can choose graphs against.
        """
        return self._certificate(self.graph_of(graph), Sampling(samples, alpha, False, method, seed))

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
        """As :meth:`certify`, for each graph in order; with ``simultaneous`` alpha holds for all of them at once. See also
        :meth:`DefendedClassifier.certify_all`."""
        members = self.graphs_of(graphs)
        request = Sampling(samples, alpha, simultaneous, method, seed, graphs=max(1, len(members)))
        return self._certificates(members, request, progress, workers, engine)

    def predict(self, graph: Any, *, samples: int = 1_000, alpha: float = 0.001, seed: int | None = None) -> int | None:
        """The smoothed prediction, or ``None`` (abstain) where the two top classes are too close to tell.

        A class other than the smoothed classifier's answer is returned with probability at most ``alpha``.
        """
        if self.effective() is not self:
            return self.effective().predict(graph)
        votes: Votes = self._evidence(self.graph_of(graph), Sampling(samples, alpha, seed=seed))
        return votes.leader(alpha)

    def sample(self, graph: Any, *, samples: int = 10_000, seed: int | None = None) -> Votes:
        """The model's votes on noisy copies of a graph. Keep them: :func:`certify_votes` reads certificates off them."""
        votes: Votes = self._evidence(self.graph_of(graph), Sampling(samples, seed=seed))
        return votes
