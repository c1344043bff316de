"""Training through the certificate: a local network learns to keep its lead under the worst attack that its certificate knows.

With leads ``s_yB`` of the true class ``y`` over its rivals ``B``, the share ``p = 1 / (1 + sum_B exp(-lead_B))``, and
``worst_B`` the knapsack's value for ``r`` flips, the loss of a graph is

    (1 - mix) loss(s_y) + mix loss(s_y - ramp * worst),        loss(lead) = (1 - p^q) / q.

Every batch draws the budget that the network is told, up to the largest, and mostly faces all of its flips. ``ramp`` grows
from 0 to 1 over the first half of the training. Late in the training the loss is bounded, ``q`` growing from 0 to 1, and leads
count three times; with node features it stays the cross-entropy. docs/local.md says why.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flipproof.checks import check_classes, checked_budget
from flipproof.classifiers.features import Constant, edge_free
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.models.local_network import LOUDEST, Local
from flipproof.models.node_statistics import Floats, folds, node_statistics
from flipproof.noise import keyed_draws
from flipproof.training.batches import LabelledGraphs
from flipproof.training.loop import Epoch, Lesson, Outcome, Task, TrainingResult
from flipproof.training.reached_views import ReachedViews, TrainingAttack

_MIX = 0.9  # weight of the lead under attack
_TOP = 0.3  # largest share of the batches that prepare for the largest budget; others for any, on a logarithmic scale
_FULL = 0.8  # share of the batches that face all flips of their budget
# parts of the training between which the drop comes to count in full; with node features later, or edges are never learnt
_RAMP = (0.0, 0.5), (0.3, 0.7)
_BOUNDED = 0.4, 0.8  # and the loss without node features comes to be bounded, and sharp
_BOUND, _SHARP = 1.0, 3.0  # q of that loss in the end, and the factor of leads
_RECURRENT = 0.5  # share of graphs from which on numbers of nodes are learnt one by one
_VALIDATION_BATCH = 128
# how loud the network may be beside log-odds; of equally good ones the first, and silence is the last
_VOLUMES = (1.0, 0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.25, LOUDEST, 0.18, 0.12, 0.0)
_PARTS = 5  # of the training graphs, of which the network is not shown one


def recipe(model: Any) -> dict[str, float]:
    featured = getattr(model, "in_features", 0) > 0
    return {"learning_rate": 0.003 if featured else 0.006, "weight_decay": 0.3 if featured else 1e-3, "average": 0.99}


class CertifiedTraining(Task):
    """Training a local network through its certificate; arguments as for :func:`flipproof.train`."""

    def __init__(self, lesson: Lesson, budget: int | Sequence[int]) -> None:
        model, members, chosen = lesson.model, lesson.graphs, lesson.chosen
        self.most, self.flips = _checked(model, budget)
        self.featured = bool(model.in_features)
        # the default of other networks, degrees, stands for the graphs' own
        own = "own" if lesson.features in (None, "degree") else lesson.features
        super().__init__(lesson, edge_free(own, "a local network") if self.featured else Constant())
        check_classes(model.num_classes, self.highest_label)
        self.both = isinstance(budget, Sequence)
        self.settings = {"budget": list(self.most) if self.both else self.flips}
        # with node features, several flips are taken for as many times the worst one: a node has so many views a few flips away
        # that the plain knapsack is far above the truth, and slow. It is no bound, and no certificate rests on it
        self.pairwise = self.featured and not self.both
        labels = self.graphs.labels
        self.class_weight = torch.ones(model.num_classes)
        if chosen.class_weights:
            counts = torch.bincount(labels, minlength=model.num_classes).clamp_min(1)
            self.class_weight = len(members) / (counts * model.num_classes)
        self.not_shown = torch.zeros(len(members), dtype=torch.bool)
        odds = None
        if self.featured:
            model.hear([1.0])
            model.measure_columns(torch.cat([self._nodes(graph) for graph in members]))
            weights = self.class_weight.double().numpy()
            odds = model.odds.fit(self._statistics(members), labels.numpy(), weights, chosen.seed)
            for _, judges in folds(labels.numpy(), chosen.seed + 1, _PARTS)[:1]:
                self.not_shown[judges] = True
        depth = 1 if self.pairwise else self.flips
        self.views = ReachedViews(members, labels, self.features, model, depth, odds)
        if lesson.validation is not None:
            odds = model.odds.of(self._statistics(lesson.validation)) if self.featured else None
            self.other_views = ReachedViews(lesson.validation, self.held_out.labels, self.features, model, depth, odds)
        self.steps = chosen.epochs * -(-len(members) // chosen.batch_size)
        model.standardise(self.views.sizes, self.views.sums)
        model.for_budget(self.flips, trained=True)
        model.learn_sizes(recurrence(members, labels.tolist()) >= _RECURRENT)

    def _nodes(self, graph: Graph) -> Tensor:
        rows = self.features.of(graph).to(torch.float32)
        if rows.shape[1] != self.model.in_features:
            raise InputError(
                f"the network takes {self.model.in_features} node features; a graph has {rows.shape[1]} (build it with "
                f"in_features={rows.shape[1]})"
            )
        return rows

    def _statistics(self, graphs: Sequence[Graph]) -> Floats:
        return np.array([node_statistics(self._nodes(graph).numpy()) for graph in graphs])

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        done, shown = step / max(1, self.steps), members[~self.not_shown[members]]
        draws = keyed_draws("training budget", self.chosen.seed, step, (1, 4)).astype(np.int64)[0] / 2**32
        if len(shown):
            ramp, late = _between(done, *_RAMP[self.featured]), _between(done, *_BOUNDED)
            yield self._outcome(self.views, shown, self._drawn(draws), ramp, late, alone=True)

    @torch.no_grad()
    def finish(self) -> None:
        """Find how loud the network may be, for each number of flips to withstand."""
        super().finish()
        if not self.not_shown.any():
            return
        numbers = range(1, min(self.flips, len(self.model.loudness)) + 1)
        attacks = [TrainingAttack(*[number] * 4) for number in numbers]
        if self.both:
            attacks = [TrainingAttack(self.flips, *self.most, self.flips)]
        self.model.hear([self._best_volume(attack) for attack in attacks])

    def _best_volume(self, attack: TrainingAttack) -> float:
        """The volume at which most graphs that were not learnt from keep their lead under attack; 0 unless another is better by
        more than a standard error of the difference."""
        kept, judges = [], self.not_shown.nonzero()[:, 0]
        for part in torch.split(judges, _VALIDATION_BATCH):
            leads, worst, _ = self._attacked(self.views, part, attack, alone=True)
            nodes = self.views.odds_leads(self.model, part)
            kept.append(torch.stack([(nodes + loud * (leads - worst) > 0).all(dim=1) for loud in _VOLUMES]))
        weighted = torch.cat(kept, dim=1).double() * self.class_weight[self.views.labels[judges]]
        best = int(weighted.mean(dim=1).argmax())
        gain = weighted[best] - weighted[-1]
        sure = int((gain != 0).sum()) > 1 and float(gain.sum()) > float(gain.std()) * len(gain) ** 0.5
        return _VOLUMES[best] if sure else 0.0

    def validation(self) -> Iterator[Outcome]:
        for part in torch.split(torch.arange(len(self.other_views.labels)), _VALIDATION_BATCH):
            yield self._outcome(self.other_views, part, TrainingAttack(self.flips, *self.most, self.flips), 1.0, 1.0)

    def _drawn(self, draws: Floats) -> TrainingAttack:
        """The attack of a step, from numbers in [0, 1)."""
        if not self.both:
            budget = flips = self.flips
            if draws[0] >= min(_TOP, 1 / self.flips):  # a large budget must not crowd out small ones
                budget = flips = max(1, round(0.5 * (2 * budget + 1) ** float(draws[1])))
            if draws[2] >= _FULL:
                flips = 1 + int(draws[3] * budget)
            return TrainingAttack(budget, flips, flips, flips)
        adds, removes = (int(draw * (most + 1)) for draw, most in zip(draws[:2], self.most, strict=True))
        if adds + removes == 0 or draws[2] < _FULL:
            adds, removes = self.most
        return TrainingAttack(self.flips, adds, removes, adds + removes)

    def _outcome(
        self,
        views: ReachedViews,
        members: Tensor,
        attack: TrainingAttack,
        ramp: float,
        late: float,
        alone: bool = False,
    ) -> Outcome:
        """Mean loss over graphs, with the part that the worst attack has in it."""
        leads, worst, right = self._attacked(views, members, attack, alone=alone, attacked=ramp > 0)
        bound, sharp = (0.0, 1.0) if self.featured else (late * _BOUND, 1 + late * (_SHARP - 1))
        unattacked, under_attack = (bounded_loss(sharp * lead, bound) for lead in (leads, leads - ramp * worst))
        losses = (1 - _MIX) * unattacked + _MIX * under_attack
        weights = self.class_weight[views.labels[members]]
        return Outcome((losses * weights).sum() / weights.sum(), float(right.sum()), len(members))

    def _attacked(
        self, views: ReachedViews, members: Tensor, attack: TrainingAttack, *, alone: bool, attacked: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        single = TrainingAttack(attack.budget, 1, 1, 1) if self.pairwise else attack
        leads, worst, right = views.leads(self.model, members, single, attacked=attacked, alone=alone)
        return leads, attack.flips * worst if self.pairwise else worst, right


def learn_counts(
    lesson: Lesson, budget: int | Sequence[int], progress: bool | Callable[[int, int], None]
) -> TrainingResult:
    """Fill the table of a local network that reads numbers of nodes and edges alone; the loss is the share of errors."""
    model, chosen, started = lesson.model, lesson.chosen, time.perf_counter()
    most, flips = _checked(model, budget)
    learnt = LabelledGraphs(lesson.graphs, "graphs")
    parts = [learnt, *([] if lesson.validation is None else [LabelledGraphs(lesson.validation, "validation")])]
    check_classes(model.num_classes, max(int(part.labels.max()) for part in parts))
    sizes, edges, labels = (part.numpy() for part in (learnt.sizes, learnt.num_edges, learnt.labels))
    weights = np.ones(model.num_classes)
    if chosen.class_weights:
        weights = 1 / np.maximum(1, np.bincount(labels, minlength=model.num_classes))
    model.table.learn(sizes, edges, labels, weights, flips, most)
    model.for_budget(flips, trained=True)
    model.eval()
    shares = []
    for part in parts:
        answers = model.table(part.sizes, part.num_edges, torch.full_like(part.sizes, flips))
        right = float((answers == part.labels).double().mean())
        shares += [1 - right, right]
    settings = {"budget": flips if isinstance(budget, int) else list(most), "class_weights": chosen.class_weights}
    if callable(progress):
        progress(chosen.epochs, chosen.epochs)
    return TrainingResult((Epoch(*shares),), 0, time.perf_counter() - started, settings)


def bounded_loss(leads: Tensor, bound: float) -> Tensor:
    """Loss of each graph ``[B]`` from its leads over rivals ``[B, C - 1]``: at most ``1 / bound``; for 0 the cross-entropy."""
    log_share = -torch.logsumexp(torch.cat([torch.zeros_like(leads[:, :1]), -leads], dim=1), dim=1)
    return -log_share if bound == 0 else -torch.expm1(bound * log_share) / bound


def recurrence(graphs: Sequence[Graph], labels: Sequence[int]) -> float:
    """Share of the graphs whose label is that of most other graphs with the same degrees: how much of what was seen comes back.

    >>> path, star = Graph(4, [(0, 1), (1, 2), (2, 3)]), Graph(4, [(0, 1), (0, 2), (0, 3)])
    >>> recurrence([path, path, star, star], [0, 0, 1, 1]), recurrence([path, path, star, star], [0, 1, 0, 1])
    (1.0, 0.0)
    """
    keys = [np.sort(np.bincount(graph.edges.ravel(), minlength=graph.num_nodes)).tobytes() for graph in graphs]
    seen: defaultdict[bytes, Counter[int]] = defaultdict(Counter)
    for key, label in zip(keys, labels, strict=True):
        seen[key][label] += 1
    others = [(label, seen[key] - Counter([label])) for key, label in zip(keys, labels, strict=True)]
    return sum([c.total() > 0 and all(c[y] > c[rival] for rival in c if rival != y) for y, c in others]) / len(keys)


def _between(done: float, start: float, end: float) -> float:
    return min(1.0, max(0.0, (done - start) / (end - start)))


def _checked(model: Any, budget: Any) -> tuple[tuple[int, int], int]:
    """Additions and removals of a local network's budget, and flips; a single number stands for either kind."""
    if not isinstance(model, Local):
        raise InputError(f"budget is for local networks; got {type(model).__name__} (take a flipproof.models.Local)")
    most = checked_budget(budget)
    return most, sum(most) if isinstance(budget, Sequence) else most[0]
