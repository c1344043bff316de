"""What an attack on the smoothed classifier minimises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.bounds import checked_alpha, label_pvalue
from flipproof.checks import checked_samples, checked_seed
from flipproof.defences.target import Confirmation, CopiesTarget, checked_copies
from flipproof.graphs import Graph
from flipproof.noise import keyed_draws, noisy_states

if TYPE_CHECKING:
    from flipproof.defences.smoothing import SmoothedClassifier

__all__ = ["SmoothedTarget"]

_CLEAR = 2.0  # standard errors by which a rival must lead on the noise that the attack was searched with


class SmoothedTarget(CopiesTarget):
    """The most frequent answer under noise, estimated on the same noise for all candidates.

    Common random numbers: slot ``i`` of sample ``m`` has one random integer, compared with the threshold of whatever state the
    candidate has there, so that two candidates differ only where their flips do. A candidate counts as fooled when a rival
    leads by two standard errors; whether it truly is, :meth:`confirm` tells with fresh noise.
    """

    relaxed = 32

    def __init__(
        self,
        smooth: SmoothedClassifier,
        graph: Graph,
        *,
        samples: int,
        confirm_samples: int,
        alpha: float,
        seed: int,
        max_calls: int | None,
    ) -> None:
        self.smooth, self.confirm_samples = smooth, checked_samples(confirm_samples)
        self.samples = checked_copies(checked_samples(samples), graph, "samples", "lower samples")
        self.alpha, self.seed = checked_alpha(alpha), checked_seed(seed)
        smooth.check([graph])
        draws = keyed_draws("attack noise", self.seed, 0, (self.samples, graph.num_slots))
        empty = np.zeros(draws.shape, dtype=np.bool_)
        self.if_empty = noisy_states(empty, draws, smooth.noise)
        self.if_edge = noisy_states(~empty, draws, smooth.noise)
        super().__init__(smooth.classifier, graph, smooth.noise, max_calls)

    def _fooled(self, counts: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.bool_]:
        own = counts[:, self.label]
        fooled: NDArray[np.bool_] = -margins > _CLEAR * np.sqrt(2 * own - margins)
        return fooled

    def prediction(self) -> int:
        found = self.smooth.sample(self.graph, samples=self.confirm_samples, seed=_fresh_seed("clean", self.seed))
        self.calls += self.confirm_samples
        return int(found.counts.argmax())

    def confirm(self, graph: Graph) -> Confirmation:
        """On fresh noise, a binomial test of the strongest rival against the label, corrected for choosing the rival.

        An attack after which the label is still the smoothed classifier's answer passes with probability at most ``alpha``.
        """
        votes = self.smooth.sample(graph, samples=self.confirm_samples, seed=_fresh_seed("confirm", self.seed))
        self.calls += self.confirm_samples
        counts = votes.counts
        margin = float(self._margins(counts[None].astype(np.float64))[0])
        rival = int(counts[self.label] - margin)
        p_value = 1.0
        if margin < 0:  # the label test is two-sided: half of it, once for each rival
            p_value = min(1.0, float(label_pvalue(rival, counts[self.label])) / 2 * (len(counts) - 1))
        level = checked_alpha(self.alpha, samples=len(votes), discrepancy=votes.stream().discrepancy)
        return Confirmation(p_value <= level, margin / len(votes), p_value)


def _fresh_seed(purpose: str, seed: int) -> int:
    """A seed that the search had no part in."""
    return int(keyed_draws(f"attack {purpose}", seed, 0, (1,))[0])
