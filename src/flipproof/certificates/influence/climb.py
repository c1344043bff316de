"""From votes and regenerated flips to a certificate: which attacks are withstood, and the radius."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates import vote_share as by_votes
from flipproof.certificates.bounds import AlphaSplit, label_pvalue, lower_bound, upper_bound
from flipproof.certificates.certificate import GRID_LIMIT, Certificate, cut_grid
from flipproof.certificates.influence.attack import Attack
from flipproof.certificates.influence.programme import (
    basic_multipliers,
    lead_by_identity,
    lead_by_programme,
    lead_by_triples,
)
from flipproof.certificates.influence.statistics import (
    FlipCounts,
    MomentBounds,
    TripleBounds,
    bound_moments,
    count_flips,
    lower_moments,
)
from flipproof.certificates.sampled_votes import Votes
from flipproof.noise import EdgeNoise

__all__ = ["choose_order", "could_reach", "default_split", "from_votes"]

# Limits of the orders: slots; cells of the table of pairs; work per sample on triples, which is to stay well below the work of a
# small network, and flips kept; and samples with all slots of a subset flipped, below which an order says nothing.
_FIRST_SLOTS = 1 << 16
_SECOND_CELLS = 1 << 23
_THIRD_WORK = 250_000
_THIRD_BITS = 1 << 29
_LEAST_TRIALS = 20

_LABEL = 0.05
_FAR = -0.15  # a lead over all rivals at once that is as low as this is not tried for each of them
_TOP_BALANCE = 0.65  # the top class's part of every share where there are several rivals


def choose_order(num_slots: int, samples: int, noise: EdgeNoise, num_classes: int) -> int:
    """The highest order of influences worth counting: 3, 2, 1, or 0 for the vote share alone.

    A function of sizes and noise alone, so that nothing is chosen after looking at the votes.

    >>> [choose_order(n, 10_000, EdgeNoise(keep=0.8), 8) for n in (45, 435, 10_000, 1_000_000)]
    [3, 2, 1, 0]
    """
    flip = max(noise.p_add, noise.p_remove)
    limits = (
        num_slots <= _FIRST_SLOTS,
        num_classes * num_slots**2 <= _SECOND_CELLS,
        flip * num_slots**3 <= _THIRD_WORK and samples * num_slots <= _THIRD_BITS,
    )
    order = 0
    while order < 3 and limits[order] and samples * flip ** (order + 1) >= _LEAST_TRIALS and num_slots > order:
        order += 1
    return order


def from_votes(
    votes: Votes, *, alpha: float, stated_alpha: float | None = None, split: AlphaSplit | None = None
) -> Certificate:
    """Method ``influence``: a certificate from the votes and the flips they were cast on.

    With probability at least ``1 - alpha`` it abstains, or the label is the smoothed classifier's answer and no attack within
    the radius (or in a certified cell of the grid) changes it.

    Failure probabilities: ``split.label * alpha`` for naming a class that is not the most likely one. If the named class is the
    right one, the certificate can only be wrong if it passes one *fixed* attack that it must not pass; the bounds for any one
    attack and rival fail with probability ``(1 - split.label) * alpha`` at most.

    Args:
        votes: Labels, with what is needed to make the flips again. They are made again and compared with the checksums.
        alpha: Failure probability that may be used.
        stated_alpha: What to print where the caller holds some of alpha back.
        split: The same shares for every size of attack; by default :func:`default_split` of each.
    """
    graph, noise, counts = votes.graph, votes.noise, votes.counts
    stated = alpha if stated_alpha is None else stated_alpha
    share_alone = by_votes.from_counts(
        counts, noise, alpha=alpha, max_adds=graph.max_adds, max_removes=graph.max_removes, stated_alpha=stated
    )
    order = choose_order(graph.num_slots, len(votes), noise, votes.num_classes)
    if split is not None:
        order = min(order, split.order)
    if order == 0:
        return replace(share_alone, method="influence")
    flip_counts = count_flips(votes, order)
    top, second = (int(label) for label in np.argsort(-counts, kind="stable")[:2])
    named = label_pvalue(counts[top], counts[second]) <= (_LABEL if split is None else split.label) * alpha
    tests = _Tests(flip_counts, noise, graph.slot_states, top, alpha, split)
    found, grid = -1, np.zeros((0, 0), dtype=np.bool_)
    if named:
        search = _symmetric_search if noise.symmetric else _search
        found, grid = search(tests, graph.max_adds, graph.max_removes)
    p_lower, p_upper = tests.shares(tests.split(tests.attack(0, max(found, 1))), 1.0)
    return replace(
        share_alone,
        label=top if named else None,
        radius=found,
        method="influence",
        p_lower=p_lower,
        p_upper=min(p_upper, 1 - p_lower),
        grid=cut_grid(grid),
        order=order,
    )


def could_reach(votes: Votes, wanted: int, *, samples: int, alpha: float, doubt: float) -> bool:
    """Whether the certificate of more samples may reach a radius, as far as attacks of one and two flips tell.

    Every count of the top class is raised to its upper confidence bound, and all counts to as many samples; what then fails is
    not expected to pass.

    Args:
        votes: Those cast so far.
        wanted: The radius.
        samples: Of the certificate to come.
        alpha: Of the certificate to come.
        doubt: Level of each upper bound.
    """
    graph, noise, counts = votes.graph, votes.noise, votes.counts
    order = min(2, choose_order(graph.num_slots, len(votes), noise, votes.num_classes))
    flip_counts = count_flips(votes, order)
    top, second = (int(label) for label in np.argsort(-counts, kind="stable")[:2])
    lead = upper_bound(counts[top], counts[top] + counts[second], failure_prob=doubt)
    hoped = math.floor(lead * (counts[top] + counts[second]) * (samples / len(votes)))
    if label_pvalue(hoped, (counts[top] + counts[second]) * samples // len(votes) - hoped) > _LABEL * alpha:
        return False
    hopeful = flip_counts.hopeful(top, samples, doubt=doubt)
    tests = _Tests(hopeful, noise, graph.slot_states, top, alpha, None)
    for size in range(1, min(wanted, order) + 1):
        splits = [(0, size)] if noise.symmetric else [(adds, size - adds) for adds in range(size + 1)]
        for adds, removes in splits:
            offered = noise.symmetric or (adds <= graph.max_adds and removes <= graph.max_removes)
            if offered and not tests.passes(adds, removes):
                return False
    return True


class _Tests:
    """Tests of attacks of given sizes; each has failure probability ``part * alpha`` for any one attacked set and rival."""

    def __init__(
        self,
        counts: FlipCounts,
        noise: EdgeNoise,
        states: NDArray[np.bool_],
        top: int,
        alpha: float,
        split: AlphaSplit | None,
    ) -> None:
        self.counts, self.noise, self.states = counts, noise, states
        self.top, self.alpha, self._split = top, alpha, split
        self.rivals = counts.rivals(top)
        self.samples = int(counts.tables[0].sum())

    def attack(self, adds: int, removes: int) -> Attack:
        return Attack.of(self.noise, self.states, adds=adds, removes=removes)

    def split(self, attack: Attack) -> AlphaSplit:
        if self._split is not None:
            return self._split
        return default_split(attack, self.samples, self.counts.order, len(self.rivals) + 1)

    def shares(self, split: AlphaSplit, part: float) -> tuple[float, float]:
        """Lower bound on the top class's share, upper bound on any rival's."""
        counts = self.counts.tables[0]
        p_lower = float(lower_bound(counts[self.top], self.samples, failure_prob=split.top * self.alpha * part))
        p_upper = np.nextafter(1 - p_lower, 2.0)
        if len(self.rivals) > 1 and split.rivals > 0:
            most = counts[self.rivals].max()
            p_upper = min(
                p_upper, float(upper_bound(most, self.samples, failure_prob=split.rivals * self.alpha * part))
            )
        return p_lower, float(p_upper)

    def passes(self, adds: int, removes: int, part: float = 1.0) -> bool:
        """Whether no attack of exactly this size can change the label."""
        attack = self.attack(adds, removes)
        split = self.split(attack)
        p_lower, p_upper = self.shares(split, part)
        rival = np.nextafter(1 - p_upper, 0.0)
        after = np.asarray(by_votes.worst_case([p_lower, rival], self.noise, adds, removes))
        if after.sum() > 1 + 2.0**-50:
            return True
        if attack.order(min(self.counts.order, split.order)) == 0 or not attack.exists:
            return False
        alpha = self.alpha * part
        lower = lower_moments(self.counts, attack, split, alpha=alpha, top=self.top)
        # all rivals at once, then one by one where that was too strict
        waiting = [self.rivals if len(self.rivals) > 1 else []]
        while waiting:
            rivals = waiting.pop()
            bounds = bound_moments(lower, self.counts, attack, split, alpha=alpha, rivals=rivals)
            lead = self._lead(bounds, attack, split, alpha, rivals)
            if lead > 0:
                continue
            if len(rivals) < 2 or lead < _FAR:
                return False
            waiting += [rivals[1:], rivals[:1]]
        return True

    def _lead(self, bounds: MomentBounds, attack: Attack, split: AlphaSplit, alpha: float, rivals: list[int]) -> float:
        """Lower bound on the top class's lead over the given rivals (none given: all that is not the top class)."""
        lead = -np.inf
        if attack.size < len(bounds.lower):
            lead = lead_by_identity(bounds, attack)
        if lead <= 0 and attack.size > 1:
            lead = max(lead, lead_by_programme(bounds, attack, coupled=bool(rivals)))
        if lead <= 0 and attack.order(self.counts.order) == 3 and split.third > 0:
            refine = TripleBounds(self.counts, attack, split, alpha=alpha, top=self.top, rivals=rivals)
            # how far a lost case is off is not known, as the search ends with the first set that is lost
            lead = max(0.0 if lead > 2 * _FAR else lead, lead_by_triples(bounds, attack, refine))
        return lead


def _symmetric_search(tests: _Tests, max_adds: int, max_removes: int) -> tuple[int, NDArray[np.bool_]]:
    """Go up and stop at the first size that fails: one fixed size is the first that must, so every test has all of alpha."""
    radius = 0
    while radius < max_adds + max_removes and tests.passes(0, radius + 1):
        radius += 1
    adds, removes = np.ogrid[: min(max_adds, GRID_LIMIT - 1) + 1, : min(max_removes, GRID_LIMIT - 1) + 1]
    return radius, adds + removes <= radius


def _search(tests: _Tests, max_adds: int, max_removes: int) -> tuple[int, NDArray[np.bool_]]:
    """Radius and grid for unequal probabilities.

    Half of alpha goes to the radius: of all attacks that must not pass, one of the smallest size is fixed. The other half goes
    to the grid beyond: in each row (number of additions) the first cell that must not pass is fixed, and rows share that half
    in fixed proportions 1, 1/4, 1/9, ...
    """
    rows, columns = min(max_adds, GRID_LIMIT - 1) + 1, min(max_removes, GRID_LIMIT - 1) + 1
    parts = 1 / np.arange(1, rows + 1) ** 2
    parts *= (0.5 - 2.0**-40) / parts.sum()
    grid = np.zeros((rows, columns), dtype=np.bool_)
    for adds in range(rows):
        for removes in range(columns):
            smaller = (adds == 0 or grid[adds - 1, removes]) and (removes == 0 or grid[adds, removes - 1])
            if not smaller:
                break
            grid[adds, removes] = adds + removes == 0 or tests.passes(adds, removes, float(parts[adds]))
        if not grid[adds, 0]:
            break
    radius = 0
    while radius < max_adds + max_removes:
        flips = radius + 1
        cells = [(adds, flips - adds) for adds in range(max(0, flips - max_removes), min(flips, max_adds) + 1)]
        known = [adds < rows and removes < columns and bool(grid[adds, removes]) for adds, removes in cells]
        if not all(
            good or tests.passes(adds, removes, 0.5) for good, (adds, removes) in zip(known, cells, strict=True)
        ):
            break
        radius = flips
    adds_axis, removes_axis = np.ogrid[:rows, :columns]
    return radius, grid | (adds_axis + removes_axis <= radius)


def default_split(attack: Attack, samples: int, order: int, num_classes: int) -> AlphaSplit:
    """The shares of alpha for attacks of one size; a function of sizes and noise alone.

    A bound that enters with coefficient ``c`` and standard deviation ``s`` costs about ``c s sqrt(2 log(1 / failure))``: the
    sum of the costs is least when failure probabilities are proportional to ``c s``. Coefficients are the identity's,
    or, for attacks beyond the order, the multipliers of a nominal classifier whose top class has 9 of 10 votes whatever is
    flipped. Sizes that only a nearly unanimous vote withstands get no influences: all goes to the share of votes.
    """
    order = attack.order(order)
    balance = 1.0 if num_classes == 2 else _TOP_BALANCE
    least_top = 0.05
    if order == 0 or (attack.size > order and samples * _votes_to_lose(attack) < _LEAST_TRIALS):
        weights, balance = [1.0], max(balance, 0.95)
    elif attack.size <= order:
        weights = _identity_costs(attack, order)
    elif len(attack.groups) == 1:
        (group,) = attack.groups
        flipped = group.flip ** np.arange(order + 1)
        nominal = np.maximum(0.9 - 3 * np.sqrt(0.09 / (samples * flipped)), 0.0)
        table = basic_multipliers(attack.groups, attack.overlap, order)
        binomials = np.array([math.comb(group.count, k) for k in range(order + 1)])
        weights = (table.best(nominal * binomials * flipped) * binomials * np.sqrt(flipped)).tolist()
        least_top = 0.3
    else:
        weights = [0.4, 0.6] if order == 1 else [0.35, 0.3, 0.35]
    shares = np.array(weights) / max(sum(weights), 1e-300)
    shares[0] = max(shares[0], least_top)
    shares *= (1 - _LABEL - 2.0**-40) / shares.sum()
    shares = np.concatenate([shares, np.zeros(4 - len(shares))])
    return AlphaSplit(
        label=_LABEL,
        top=float(shares[0]) * balance,
        rivals=float(shares[0]) * (1 - balance),
        first=float(shares[1]),
        second=float(shares[2]),
        third=float(shares[3]),
        balance=balance,
    )


def _votes_to_lose(attack: Attack) -> float:
    """The share of votes that the top class may lack for the vote share alone to withstand the attack.

    Where it comes to a few votes only, influences show nothing that could be set against an attack beyond the order.
    """
    x, y = np.ones(1), np.full(1, attack.overlap)
    for group in attack.groups:
        law_x, law_y = group.laws()
        x, y = np.convolve(x, law_x), np.convolve(y, law_y)
    before = np.cumsum(y) - y
    region = int(np.sum(before <= 0.5)) - 1
    if before[region] + y[region] <= 0.5 or y[region] <= 0:
        return 0.0
    return max(0.0, float(x[region:].sum() - (0.5 - before[region]) * x[region] / y[region]))


def _identity_costs(attack: Attack, order: int) -> list[float]:
    """Coefficient times standard deviation of the identity's terms, summed over the subsets of each size."""
    costs = np.ones(1)
    for group in attack.groups:
        for _ in range(group.count):
            costs = np.convolve(costs, [group.stay_ratio, group.flip_gain * math.sqrt(group.flip)])
    return [float(cost) for cost in costs[: order + 1]]
