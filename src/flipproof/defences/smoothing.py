"""The smoothed classifier: sample noisy graphs, ask the model, certify the answer. The file to read first.

    votes = the model's label on each of M noisy copies of the graph           (sample)
    certificate = label and radius that follow from the votes                  (certify)

The smoothed classifier ``g`` answers the class that the model ``f`` gives most often under the noise. ``g``
itself cannot be evaluated, only sampled; a certificate says which answer ``g`` gives, and within how many
edge flips it stays the same, except with probability alpha over the sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.bounds import checked_alpha, label_pvalue
from flipproof.certificates.certificate import Certificate
from flipproof.certificates.sampled_votes import DEFAULT_METHOD, Block, Votes, unanimous_certificate
from flipproof.checks import checked_samples
from flipproof.classifiers.classifier import Classifier
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import Defence, Option, Request, label_dtype
from flipproof.defences.sampled_question import SampledQuestion
from flipproof.defences.smoothed_target import SmoothedTarget
from flipproof.defences.target import Target
from flipproof.engines import Engine
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graph, as_graphs
from flipproof.noise import BLOCK, EdgeNoise, SampleStream, keyed_draws

if TYPE_CHECKING:
    from flipproof.datasets import Dataset

__all__ = ["SampledQuestion", "SmoothedClassifier"]

_EFFORTS = (1_000, 10_000, 100_000)  # samples
_KEEPS = (0.8, 0.9, 0.95, 0.98)
# edges added for each that is there, and the share removed. Where more than half of the edges are removed, a single added one is
# mostly removed too: few additions then suffice to hide it, and the graph is thinned rather than blurred
_PAIRS = ((0.3, 0.2), (0.05, 0.4), (0.01, 0.6), (0.01, 0.8))


class SmoothedClassifier(Defence):
    """A graph classifier made robust by edge noise; wraps any model.

    Args:
        model: A torch module with ``forward(x, edge_index, batch)`` (PyG's convention), ``forward(data)`` or
            ``forward(x, adj, mask)`` (dense), returning logits ``[graphs, num_classes]``, or for two classes one logit per
            graph, which is above 0 for class 1; or any callable from a list of :class:`Graph` to labels. It is asked on the
            device of its weights.
        noise: The random flips.
        **wrapped: ``num_classes``, ``features`` (computed on every *noisy* graph), ``convention``, ``trust_features`` and
            ``memory``; see :class:`flipproof.defences.Defence`.

    >>> def has_triangle(graphs):
    ...     return [int(np.trace(np.linalg.matrix_power(g.adjacency(), 3)) > 0) for g in graphs]
    >>> smooth = SmoothedClassifier(has_triangle, EdgeNoise(keep=0.9), num_classes=2)
    >>> complete = Graph(4, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])
    >>> print(smooth.certify(complete, samples=1000, seed=0, method="votes"))
    class 1, certified against any 1 edge flip (votes, alpha 0.001, 1,000 samples, share of votes at least 0.9492)
    """

    name = "smoothing"
    tried_where_asked = True
    evidence_type = Votes
    question_type = SampledQuestion
    trait = "smoothed"
    references = ("gao2020certified", "cohen2019certified", "bojchevski2020efficient", "hung2019rank")
    settings = (
        Option("keep", float, "Probability that a node pair keeps its state (the paper's beta)."),
        Option("add", float, "Probability that an empty node pair gains an edge."),
        Option("remove", float, "Probability that an edge is lost."),
    )
    trial_options = (
        Option("keep", float, "Symmetric noise to try; give it several times."),
        Option("noise", str, "Noise ADD,REMOVE to try; give it several times."),
    )
    effort = 3
    asking = (
        Option("samples", str, "Number of noisy copies per graph; auto takes as many as the answer needs.", "10000"),
        Option("max_samples", int, "With auto: the largest number of samples, by default 100000.", least=1),
        Option("target_radius", int, "With auto: stop when this radius is certified or out of reach.", least=0),
        Option("precision", float, "With auto: stop when the interval of the share of votes is no wider than this."),
        Option("alpha", float, "Failure probability of each certificate.", 0.001),
        Option("simultaneous", bool, "Let alpha hold for all graphs at once: each graph gets its share of it.", False),
        Option("method", str, "How the votes are read: influence, votes or paper.", DEFAULT_METHOD),
        Option("seed", int, "Seed of the noise.", 0),
    )

    def __init__(self, model: Any, noise: EdgeNoise, **wrapped: Any) -> None:
        if not isinstance(noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise; got {noise!r} (for instance EdgeNoise(keep=0.9))")
        self._noise = noise
        super().__init__(model, **wrapped)

    @property
    def noise(self) -> EdgeNoise:
        """The random flips."""
        return self._noise

    def __repr__(self) -> str:
        return f"SmoothedClassifier({type(self.model).__name__}, {self.noise}, num_classes={self.num_classes})"

    # ---- the defence and its settings ----

    @classmethod
    def checked(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        noise = _noise_of(given)
        return {"add": noise.p_add, "remove": noise.p_remove}

    @classmethod
    def build(cls, model: Any, settings: Mapping[str, Any], **wrapped: Any) -> SmoothedClassifier:
        return cls(model, _noise_of(settings), **wrapped)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "add": self.noise.p_add, "remove": self.noise.p_remove}

    @classmethod
    def title(cls, settings: Mapping[str, Any]) -> str:
        noise = _noise_of(settings)
        if noise.symmetric:
            return f"keep {1 - noise.p_add:.6g}"
        return f"add {noise.p_add:.6g} remove {noise.p_remove:.6g}"

    @classmethod
    def words(cls, settings: Mapping[str, Any]) -> str:
        noise = _noise_of(settings)
        if noise.symmetric:
            return f"keep {1 - noise.p_add:.4g}"
        return f"add {noise.p_add:.4g}, remove {noise.p_remove:.4g}"

    @classmethod
    def training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"noise": _noise_of(settings)}

    @classmethod
    def recipes(cls, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [{"objective": "majority", "copies": 16}, {"objective": "attacked", "copies": 4}]

    @classmethod
    def trained_for(cls, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
        stored = metadata.get("noise")
        if stored is None:
            return super().trained_for(metadata)
        noise = EdgeNoise.from_thresholds(stored["add_threshold"], stored["remove_threshold"])
        return {"add": noise.p_add, "remove": noise.p_remove}

    @classmethod
    def trial(cls, name: str, value: Any) -> dict[str, Any]:
        if name != "noise":
            return super().trial(name, value)
        try:
            add, remove = map(float, value.split(","))
        except ValueError as error:
            raise InputError(f"--noise must read ADD,REMOVE; got {value!r} (for instance --noise 0.01,0.3)") from error
        return cls.checked({"add": add, "remove": remove})

    @classmethod
    def candidates(cls, graphs: Dataset) -> list[dict[str, Any]]:
        """Symmetric noises, and noises that add edges in proportion to the density."""
        edges = sum(graph.max_removes for graph in graphs)
        density = edges / max(1, edges + sum(graph.max_adds for graph in graphs))
        pairs = [{"add": float(f"{times * density:.2g}"), "remove": remove} for times, remove in _PAIRS]
        found = [cls.checked(given) for given in [*({"keep": keep} for keep in _KEEPS), *pairs]]
        return list(
            {cls.title(settings): settings for settings in found}.values()
        )  # a pair can be one of the symmetric ones

    # ---- one graph ----

    def certify(self, graph: Any, **asked: Any) -> Certificate:
        """The smoothed prediction for a graph, and the number of edge flips it withstands.

        With probability at least ``1 - alpha`` over the sampling: the certificate abstains, or its label is
        the smoothed classifier's answer for this graph and for every graph at most ``radius`` edge flips
        away.

        Args:
            graph: A :class:`Graph`, PyG ``Data``, networkx graph or adjacency matrix.
            **asked: ``samples``: noisy copies ``M`` (10,000); with ``"auto"``, or a :class:`Sequential`, as many as the answer
                needs, with the same guarantee. ``alpha``: failure probability (0.001). ``seed``: seed of the noise; ``None`` for
                a fresh secret one (an attacker who knows the seed can choose graphs against it). ``method``: ``"influence"``,
                ``"votes"`` or ``"paper"``. ``simultaneous``: of :meth:`certify_all`, let alpha hold for all graphs at once
                instead of for each by itself.
        """
        return super().certify(graph, **asked)

    def predict(self, graph: Any, *, samples: int = 1_000, alpha: float = 0.001, seed: int | None = None) -> int | None:
        """The smoothed prediction, or ``None`` (abstain) where the two top classes are too close to tell.

        A class other than the smoothed classifier's answer is returned with probability at most ``alpha``.
        """
        return self.predict_all([as_graph(graph)], samples=samples, alpha=alpha, seed=seed)[0]

    def predict_all(  # type: ignore[override]
        self,
        graphs: Iterable[Any],
        *,
        samples: int = 1_000,
        alpha: float = 0.001,
        seed: int | None = None,
        progress: bool | Callable[[int, int], None] = False,
        workers: int | None = None,
        engine: Engine | None = None,
    ) -> list[int | None]:
        """The smoothed prediction for each graph, in their order; see :meth:`predict` and :meth:`certify_all`."""
        checked_alpha(alpha)
        where: dict[str, Any] = {"progress": progress, "workers": workers, "engine": engine}
        if self.classifier.edge_blind:
            return self.effective().predict_all(graphs, **where)
        question = self.question(samples=checked_samples(samples), alpha=alpha, seed=seed)
        found = self._asked(as_graphs(graphs), question, **where, read=False)
        return [self._leader(votes, alpha) for votes, _ in found if isinstance(votes, Votes)]

    @staticmethod
    def _leader(votes: Votes, alpha: float) -> int | None:
        """The class with most votes, if its lead is no accident."""
        top, second = (int(index) for index in np.argsort(-votes.counts, kind="stable")[:2])
        level = checked_alpha(alpha, samples=len(votes), discrepancy=votes.stream().discrepancy)
        return top if label_pvalue(votes.counts[top], votes.counts[second]) <= level else None

    def answer(self, graph: Any, search: Mapping[str, Any]) -> int | None:
        samples, alpha = search.get("confirm_samples", 10_000), search.get("alpha", 0.001)
        return self.predict(graph, samples=samples, alpha=alpha, seed=search.get("seed", 0))

    def sample(self, graph: Any, **asked: Any) -> Votes:
        """The model's votes on noisy copies of a graph. Keep them: :func:`certify_votes` reads certificates off them.

        The arguments are those of :meth:`certify`; ``alpha`` and ``method`` matter with ``samples="auto"`` only, where they
        tell when there are enough.
        """
        graph, question = as_graph(graph), self.question(**asked)
        self.check([graph])
        ((_, votes, _),) = ask_all(self, question, {0: graph}, read=False)
        assert isinstance(votes, Votes)
        return votes

    # ---- asking, block by block ----

    def tasks(self, graph: Graph, question: SampledQuestion, pieces: Mapping[str, bytes]) -> list[Request]:
        """The blocks up to the next look; with ``"auto"`` then the look itself, which says whether that is enough."""
        plan = question.plan
        for look in plan.looks:
            starts = range(0, look, BLOCK)
            missing = [start for start in starts if _block_key(start) not in pieces]
            if missing:
                return [Request(_block_key(start), amount=min(BLOCK, plan.most - start)) for start in missing]
            if look == plan.most:
                break
            verdict = pieces.get(f"look {look}")
            if verdict is None:
                return [Request(f"look {look}", given={key: pieces[key] for key in map(_block_key, starts)})]
            if verdict == b"enough":
                break
        return []

    def work(self, graph: Graph, question: SampledQuestion, request: Request) -> bytes:
        what, _, number = request.key.partition(" ")
        if what == "block":
            labels, checksum = self.sample_block(graph, int(number), samples=question.plan.most, seed=question.seed)
            return checksum.encode() + labels.astype(labels.dtype.newbyteorder("<")).tobytes()
        votes = self.evidence(graph, question, request.given)
        return b"go on" if question.plan.look(votes) is None else b"enough"

    def evidence(self, graph: Graph, question: SampledQuestion, pieces: Mapping[str, bytes]) -> Votes:
        plan = question.plan
        blocks = [self._block(pieces[key]) for key in map(_block_key, range(0, plan.most, BLOCK)) if key in pieces]
        cast, expected = sum(len(labels) for labels, _ in blocks), min(len(blocks) * BLOCK, plan.most)
        if cast != expected:
            raise InputError(f"the engine must return the votes asked for; got {cast} instead of {expected}")
        return self.votes_of(graph, blocks, seed=question.seed, looks=plan.schedule)

    @classmethod
    def best(
        cls, graph: Graph, question: SampledQuestion, settings: Mapping[str, Any], num_classes: int
    ) -> Certificate | None:
        plan = question.plan
        return unanimous_certificate(
            graph,
            _noise_of(settings),
            samples=plan.most,
            alpha=question.level,
            method=question.method,
            num_classes=num_classes,
            looks=plan.schedule,
            seed=question.seed,
        )

    @classmethod
    def reaches(cls, graph: Graph, settings: Mapping[str, Any], num_classes: int) -> dict[str, Certificate]:
        found = {}
        for samples in _EFFORTS:
            question = cls.question_type.of(
                samples=samples, method="votes", seed=0
            )  # of unanimous votes as good as influence
            best = cls.best(graph, question, settings, num_classes)
            assert best is not None
            found[f"{samples:,} samples"] = best
        return found

    @classmethod
    def effect(cls, settings: Mapping[str, Any], graphs: Dataset) -> str:
        noise, count = _noise_of(settings), max(1, len(graphs))
        added = noise.p_add * sum(graph.max_adds for graph in graphs) / count
        removed = noise.p_remove * sum(graph.max_removes for graph in graphs) / count
        return f"adds {added:.1f} and removes {removed:.1f} edges on average"

    @classmethod
    def answered(cls, evidence: Any, settings: Mapping[str, Any], num_classes: int) -> bool:
        return super().answered(evidence, settings, num_classes) and evidence.noise == _noise_of(settings)

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
        checksum, labels, contents = stream.new_checksum(), [], []
        again = self._again(graph, classifier, start, samples=samples, seed=seed)
        for begin in range(start, start + BLOCK, size):
            batch, flips = stream.batch(begin, begin + size)
            checksum.update(flips)
            if stream.small:
                contents.append(flips)
            if begin < samples:
                found = classifier.labels(batch)
                labels.append(found)
                here = again[(begin <= again) & (again < begin + size)] - begin
                if len(here):
                    classifier.asked_alone(batch, found, here)
        if stream.small:
            stream.remember(start, b"".join(contents))
        kept = np.concatenate(labels)[: samples - start]
        return kept.astype(label_dtype(self.num_classes)), checksum.hexdigest()

    @staticmethod
    def _again(graph: Graph, classifier: Classifier, start: int, *, samples: int, seed: int) -> NDArray[np.int64]:
        """Samples of a block that the model is asked about a second time: a guard against models that mind their company."""
        block = min(BLOCK, samples - start)
        count = min(block, classifier.asked_again(graph, start))
        first = int(keyed_draws(f"alone {graph.topology}", seed, start, (1,))[0]) % block
        return start + (first + np.arange(count) * (block // max(1, count))) % block

    def votes_of(self, graph: Graph, blocks: Iterable[Block], *, seed: int, looks: tuple[int, ...] = ()) -> Votes:
        """The votes of a graph from the blocks that :meth:`sample_block` returned, in order."""
        labels, checksums = zip(*blocks, strict=True)
        classifier, cast = self.classifier.suited(graph, self.noise), sum(map(len, labels))
        again = [classifier.asked_again(graph, start) for start in range(0, cast, BLOCK)]
        return Votes(
            np.concatenate(labels),
            graph,
            self.noise,
            self.num_classes,
            seed,
            checksums,
            looks=looks,
            compared=min(cast, sum(again)),
        )

    def _block(self, piece: bytes) -> Block:
        kind = np.dtype(label_dtype(self.num_classes)).newbyteorder("<")
        return np.frombuffer(piece[_CHECKSUM:], dtype=kind).astype(label_dtype(self.num_classes)), piece[
            :_CHECKSUM
        ].decode()

    def target(  # type: ignore[override]
        self,
        graph: Graph,
        *,
        samples: int = 256,
        confirm_samples: int = 10_000,
        alpha: float = 0.001,
        seed: int = 0,
        max_calls: int | None = None,
    ) -> Target:
        return SmoothedTarget(
            self,
            graph,
            samples=samples,
            confirm_samples=confirm_samples,
            alpha=alpha,
            seed=seed,
            max_calls=max_calls,
        )


_CHECKSUM = 32  # characters


def _block_key(start: int) -> str:
    return f"block {start}"


def _noise_of(given: Mapping[str, Any]) -> EdgeNoise:
    return EdgeNoise(**{key: value for key in ("keep", "add", "remove") if (value := given.get(key)) is not None})
