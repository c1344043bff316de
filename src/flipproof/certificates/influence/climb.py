"""From votes and regenerated flips to a certificate: which attacks are withstood, and the radius."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates import vote_share as by_votes
from flipproof.certificates.certificate import GRID_LIMIT, Certificate, cut_grid, up_to
from flipproof.certificates.influence.lead_test import Attack, LeadTest, SignTest
from flipproof.certificates.influence.statistics import FlipCounts, count_flips
from flipproof.certificates.influence.worst_set import all_above
from flipproof.certificates.vote_share import label_pvalue, lower_bound, upper_bound
from flipproof.noise import EdgeNoise

if TYPE_CHECKING:
    from flipproof.certificates.sampled_votes import Votes

# Limits of the orders: slots; cells of the table of pairs; work per sample on triples and on quadruples, which is to stay well
# below the work of a small network, and flips kept; and samples with all slots of a subset flipped, below which an order says
# nothing (quadruples: too little to pay for their work).
_FIRST_SLOTS = 1 << 16
_SECOND_CELLS = 1 << 23
_THIRD_WORK = 500_000
_THIRD_BITS = 1 << 29
_FOURTH_WORK = 2_000_000
_LEAST_TRIALS = (20, 20, 20, 100)
_EFFORT = 500  # table entries per sample that the search for the worst attacked set may look at

_LABEL = 0.1  # as votes
_SHARE = 0.4  # for the vote share, where the test of the lead can pay
_ROWS = 0.01  # under unequal noise, for tests of the lead in the grid beyond the radius
_RIVALS = 1 / 9  # of the share's part, for the rivals' shares; as votes


class AlphaSplit(NamedTuple):
    """Shares of alpha, fixed before the votes are looked at; they add up to at most 1."""

    top: float  # for the lower bound on the top class's share
    rivals: float  # for the upper bound on a rival's share
    lead: float  # for the test of the lead


def choose_order(num_slots: int, samples: int, noise: EdgeNoise, num_classes: int) -> int:
    """The highest order of influences worth counting: 4, 3, 2, 1, or 0 for the vote share alone.

    >>> [choose_order(n, 10_000, EdgeNoise(keep=0.8), 8) for n in (45, 435, 10_000, 1_000_000)]
    [3, 2, 1, 0]
    """
    flip = max(noise.p_add, noise.p_remove)
    limits = (
        num_slots <= _FIRST_SLOTS,
        num_classes * num_slots**2 <= _SECOND_CELLS,
        flip * num_slots**3 <= _THIRD_WORK and samples * num_slots <= _THIRD_BITS,
        flip**2 * num_slots**4 <= _FOURTH_WORK,
    )
    trials = (samples * flip**order >= least for order, least in enumerate(_LEAST_TRIALS, start=1))
    worth = [all(terms) for terms in zip(limits, trials, (num_slots > order for order in range(4)), strict=True)]
    return next((order for order, good in enumerate(worth) if not good), len(worth))


def from_votes(votes: Votes, *, alpha: float) -> Certificate:
    """Method ``influence``: a certificate from the votes and the flips they were cast on.

    With probability at least ``1 - alpha`` it abstains, or the label is the smoothed classifier's answer and no attack within
    the radius (or in a certified cell of the grid) changes it.

    Failure probabilities: ``0.1 alpha`` for naming a class that is not the most likely one. If the named class is the
    right one, the certificate can only be wrong if it passes one *fixed* attack that it must not pass; the tests of any one
    attack and rival err with probability ``0.9 alpha`` at most.

    The flips are made again and compared with the votes' checksums.
    """
    graph, noise, counts = votes.graph, votes.noise, votes.counts
    share_alone = by_votes.from_counts(counts, noise, alpha=alpha, limits=(graph.max_adds, graph.max_removes))
    order = choose_order(graph.num_slots, len(votes), noise, votes.num_classes)
    if order == 0:
        return replace(share_alone, method="influence")
    flip_counts = count_flips(votes, order)
    top, second = (int(label) for label in np.argsort(-counts, kind="stable")[:2])
    named = label_pvalue(counts[top], counts[second]) <= _LABEL * alpha
    tests = _Tests(flip_counts, noise, graph.slot_states, top, alpha)
    radius, grid = -1, np.zeros((0, 0), dtype=np.bool_)
    if named:
        radius, grid = _search(tests, graph.max_adds, graph.max_removes)
    p_lower, p_upper = tests.shares(tests.split(0, max(radius, 1)))
    return replace(
        share_alone,
        label=top if named else None,
        radius=radius,
        method="influence",
        p_lower=p_lower,
        p_upper=min(p_upper, 1 - p_lower),
        grid=cut_grid(grid),
        order=order,
    )


@dataclass
class _Tests:
    """Tests of attacks by their sizes: by the vote share, at levels that hold for all sizes at once, and by the lead."""

    counts: FlipCounts
    noise: EdgeNoise
    states: NDArray[np.bool_]
    top: int
    alpha: float

    def __post_init__(self) -> None:
        ranked = np.argsort(-self.counts.votes, kind="stable").tolist()
        self.rivals = [label for label in ranked if label != self.top]
        self.samples = int(self.counts.votes.sum())
        self.shares = cache(self._shares)  # most sizes have the same split

    def split(self, adds: int, removes: int) -> AlphaSplit:
        sizes = {"samples": self.samples, "order": self.counts.order, "num_classes": len(self.rivals) + 1}
        return default_split(self.noise, self.states, adds, removes, alpha=self.alpha, **sizes)

    def _shares(self, split: AlphaSplit) -> tuple[float, float]:
        """Lower bound on the top class's share, upper bound on any rival's."""
        counts = self.counts.votes
        p_lower = float(lower_bound(counts[self.top], self.samples, failure_prob=split.top * self.alpha))
        p_upper = float(np.nextafter(1 - p_lower, 2.0))
        if split.rivals > 0:
            most = counts[self.rivals].max()
            p_upper = min(p_upper, float(upper_bound(most, self.samples, failure_prob=split.rivals * self.alpha)))
        return p_lower, p_upper

    def passes(self, adds: int, removes: int) -> bool:
        """Whether no attack of exactly this size can change the label; errs with the split's shares of alpha at most."""
        split = self.split(adds, removes)
        return self.by_share(adds, removes, *self.shares(split)) or self.by_lead(adds, removes, split.lead)

    def by_share(self, adds: int, removes: int, p_lower: float, p_upper: float) -> bool:
        """Whether the vote share alone withstands attacks of this size."""
        rival = np.nextafter(1 - p_upper, 0.0)
        after = np.asarray(by_votes.worst_case([p_lower, rival], self.noise, adds, removes))
        return bool(after.sum() > 1 + 2.0**-50)

    def by_lead(self, adds: int, removes: int, part: float) -> bool:
        """Whether the test of the lead, at level ``part * alpha``, passes for every attacked set and every rival."""
        attack = Attack.of(self.noise, self.states, adds=adds, removes=removes)
        slack = by_votes.slack(self.noise, adds, removes)
        tests = _lead_tests(attack, slack, self.counts.order, samples=self.samples, level=part * self.alpha)
        rivals = self.rivals
        while not any(self._leads(test, attack, rivals) for test in tests):  # rivals together, which is harder
            if len(rivals) == 1 or not any(self._leads(test, attack, rivals[:1]) for test in tests):
                return False
            rivals = rivals[1:]
        return True

    def _leads(self, test: LeadTest | SignTest, attack: Attack, rivals: list[int]) -> bool:
        """Whether the test passes for every attacked set and for these rivals together."""
        counts, sides = self.counts, ([self.top], rivals)
        if isinstance(test, SignTest):
            flipped = [counts.table(labels, 1)[attack.slots] for labels in sides]
            unflipped = [counts.table(labels, 0) - part for labels, part in zip(sides, flipped, strict=True)]
            return test.passes(*unflipped) and test.passes(*flipped)
        effort = _EFFORT * self.samples
        if counts.words and test.degree < 4:
            # a set of harmful slots that fails decides in many cases, and needs few counts
            few, on_few = counts.most_harmful(attack, self.top)
            if not all_above(few.weights(test, on_few, self.top, rivals), test.threshold, effort=effort):
                return False
        return all_above(counts.weights(test, attack, self.top, rivals), test.threshold, effort=effort)


def _search(tests: _Tests, max_adds: int, max_removes: int) -> tuple[int, NDArray[np.bool_]]:
    """Go up and stop at the first size that fails: one fixed size is the first that must, so every test has all of alpha."""
    radius, symmetric = 0, tests.noise.symmetric
    while radius < max_adds + max_removes:
        flips = radius + 1
        parts_added = range(1) if symmetric else range(max(0, flips - max_removes), min(flips, max_adds) + 1)
        if not all(tests.passes(adds, flips - adds) for adds in parts_added):
            break
        radius = flips
    if symmetric:
        return radius, up_to(radius, max_adds, max_removes)
    rows, columns = min(max_adds, GRID_LIMIT - 1) + 1, min(max_removes, GRID_LIMIT - 1) + 1
    # for the grid beyond the radius: its share levels are no larger than any size's
    rivals = _SHARE * _RIVALS if len(tests.rivals) > 1 else 0.0
    shares = tests.shares(AlphaSplit(top=_SHARE - rivals, rivals=rivals, lead=_ROWS))
    parts = 1 / np.arange(1, rows + 1) ** 2
    parts *= _ROWS * (1 - 2.0**-40) / parts.sum()
    grid = np.zeros((rows, columns), dtype=np.bool_)
    for adds in range(rows):
        for removes in range(columns):
            if (adds and not grid[adds - 1, removes]) or (removes and not grid[adds, removes - 1]):
                break
            grid[adds, removes] = (
                adds + removes <= radius
                or tests.by_share(adds, removes, *shares)
                or tests.by_lead(adds, removes, float(parts[adds]))
            )
    return radius, grid


def default_split(
    noise: EdgeNoise,
    states: NDArray[np.bool_],
    adds: int,
    removes: int,
    *,
    samples: int,
    alpha: float,
    order: int,
    num_classes: int,
) -> AlphaSplit:
    """The shares of alpha for attacks of one size; a function of sizes, noise and number of samples alone.

    The test of the lead gets its part where a nominal classifier, with the same share of votes whatever is flipped, needs a
    clearly smaller share for it than for the vote share alone. Elsewhere the whole goes to the vote share, as much as the method
    ``votes`` gives to it (under unequal noise, a hundredth of alpha less).
    """
    rest = 1 - _LABEL - (0 if noise.symmetric else _ROWS)
    attack = Attack.of(noise, states, adds=adds, removes=removes)
    slack = by_votes.slack(noise, adds, removes)
    tests = _lead_tests(attack, slack, order, samples=samples, level=(rest - _SHARE) * alpha)
    needed = 1 - slack + 3.3 * math.sqrt(slack * (1 - slack) / samples)
    # all of alpha for the vote share is worth much: the test of the lead must allow for twice the lost votes
    pays = any(1 - test.needed > 2 * (1 - needed) for test in tests)
    share = _SHARE if pays else rest
    rivals = share * _RIVALS if num_classes > 2 else 0.0
    return AlphaSplit(top=share - rivals, rivals=rivals, lead=(rest - share) * (1 - 2.0**-40))


@lru_cache
def _unanimous(samples: int, level: float) -> float:
    """What is known of the share if all votes agree."""
    return float(lower_bound(samples, samples, failure_prob=level))


def _lead_tests(attack: Attack, slack: float, order: int, *, samples: int, level: float) -> list[LeadTest | SignTest]:
    """The tests of the lead, of which one must pass: they err with probability ``level`` at most together."""
    if not attack.exists or level <= 0 or _unanimous(samples, level) <= 1 - slack:
        return []  # even unanimous votes are too few
    sign = SignTest.of(attack, samples=samples, level=level)
    if sign is not None:
        return [sign]
    degrees = (3, 4) if order == attack.size == 4 else (min(order, 3),)
    tests = (LeadTest.of(attack, degree, samples=samples, level=level / len(degrees)) for degree in degrees)
    return [test for test in tests if test is not None]
