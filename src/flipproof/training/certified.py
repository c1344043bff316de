"""Training through the certificate: a local network learns to keep its lead under the worst attack that its certificate knows.

With leads ``s_yB`` of the true class ``y`` over its rivals ``B``, the share ``p = 1 / (1 + sum_B exp(-lead_B))``, and
``worst_B`` the knapsack's value for ``r`` flips, the loss of a graph is

    (1 - mix) loss(s_y) + mix loss(s_y - ramp * worst),        loss(lead) = (1 - p^q) / q.

A network is trained for all budgets up to the one asked for: every batch draws the budget that the network is told, and mostly
faces all of its flips, else some. ``ramp`` grows from 0 to 1 over the first half of the training. Late in the training the loss
is bounded (Zhang and Sabuncu, NeurIPS 2018) and leads count three times: some graphs are so near to one of another class that
not both can be certified. With the unbounded cross-entropy these would govern the training, and with a soft loss both are half
certified, which is not at all. Bounded from the start, it would give up whole classes: ``q`` stays 0 for the first 40% of the
steps and grows to 1 over the next 40%, and so does the factor of leads to 3.

**With node features** the loss is the cross-entropy throughout, and a fifth of the graphs is not shown to a member. On it,
:meth:`CertifiedTraining.finish` finds how loud members may be beside log-odds that the nodes alone give, for each budget.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from flipproof.checks import checked_budget
from flipproof.classifiers.features import Constant, NodeFeatures, as_features
from flipproof.errors import InputError
from flipproof.graphs import Graph, as_graphs
from flipproof.models.local_network import LOUDEST, Local, Voters
from flipproof.models.node_statistics import folds, node_statistics
from flipproof.noise import keyed_draws
from flipproof.training.batches import LabelledGraphs, shuffled
from flipproof.training.loop import Hyperparameters, Outcome
from flipproof.training.reached_views import ReachedViews, TrainingAttack

__all__ = ["CertifiedTraining", "check_labels", "check_local", "recipe", "recurrence"]

_RATES = 0.006, 0.003  # learning rates without and with node features
_DECAYS = 1e-3, 0.3  # weight decays without and with node features
_MIX = 0.9  # weight of the lead under attack
# q of the loss in the end, and the factor of leads, without and with node features
_BOUND = 1.0, 0.0
_SHARP = 3.0, 1.0
_TOP = (
    0.3  # largest share of the batches that prepare for the largest budget; the others for any, on a logarithmic scale
)
_FULL = 0.8  # share of the batches that face all flips of their budget
# parts of the training between which the drop comes to count in full; with node features later, or edges are never learnt
_RAMP = (0.0, 0.5), (0.3, 0.7)
_BOUNDED = 0.4, 0.8  # and the loss comes to be bounded
_RECURRENT = 0.5  # share of graphs from which on numbers of nodes are learnt one by one
_VALIDATION_BATCH = 128
# how loud a member may be beside log-odds; of equally good ones the first, and silence is the last
_VOLUMES = (1.0, 0.7, 1.4, 0.5, 2.0, 0.35, 2.8, 0.25, LOUDEST, 0.18, 0.12, 0.0)
_PARTS = 5  # of the training graphs, of which a member is not shown one


def recipe(model: Any) -> dict[str, float]:
    """What suits the training of a local network, unless asked otherwise."""
    featured = getattr(model, "in_features", 0) > 0
    return {"learning_rate": _RATES[featured], "weight_decay": _DECAYS[featured], "average": 0.99}


class CertifiedTraining:
    """Training a local network through its certificate; a :class:`flipproof.training.loop.Task`.

    Args:
        model: The network.
        graphs: Labelled graphs.
        budget: Flips to prepare for, or additions and removals.
        features: Node features, which must not depend on edges.
        validation: Labelled graphs on which the epoch is chosen, or ``None``.
        chosen: The other arguments of :func:`flipproof.train`.
    """

    def __init__(
        self,
        model: Any,
        graphs: Iterable[Any],
        *,
        budget: int | Sequence[int],
        features: Any,
        validation: Iterable[Any] | None,
        chosen: Hyperparameters,
    ) -> None:
        check_local(model)
        self.model, self.chosen = model, chosen
        self.most = checked_budget(budget)
        self.budget = budget if isinstance(budget, int) else list(self.most)
        self.features = _hook(features, model)
        members = as_graphs(graphs)
        self.labelled = LabelledGraphs(members, "graphs")
        check_labels(self.labelled, model)
        self.class_weight = torch.ones(model.num_classes)
        if chosen.class_weights:
            counts = torch.bincount(self.labelled.labels, minlength=model.num_classes).clamp_min(1)
            self.class_weight = len(members) / (counts * model.num_classes)
        depth = 1 if self._pairwise else self.flips
        odds = None
        if model.in_features:
            model.hear([1.0])
            model.measure_columns(torch.cat([self._nodes(graph) for graph in members]))
            weights = self.class_weight.double().numpy()
            odds = model.odds.fit(self._statistics(members), self.labelled.labels.numpy(), weights, chosen.seed)
        self.not_shown_to = self._divided()
        self.graphs = ReachedViews(members, self.labelled.labels, self.features, model, depth, odds)
        self.held_out = None
        if validation is not None:
            kept = as_graphs(validation)
            labelled = LabelledGraphs(kept, "validation")
            check_labels(labelled, model)
            odds = model.odds.of(self._statistics(kept)) if model.in_features else None
            self.held_out = ReachedViews(kept, labelled.labels, self.features, model, self.graphs.depth, odds)
        self.steps = chosen.epochs * -(-len(members) // chosen.batch_size)
        model.standardise(self.graphs.sizes, self.graphs.sums)
        model.for_budget(self.flips, trained=True)
        model.learn_sizes(recurrence(members, self.labelled.labels.tolist()) >= _RECURRENT)

    def __len__(self) -> int:
        return len(self.labelled)

    def _nodes(self, graph: Graph) -> Tensor:
        """Features of its nodes, ``[n, d]``."""
        found = self.features.of(graph).to(torch.float32)
        if found.shape[1] != self.model.in_features:
            raise InputError(
                f"the network takes {self.model.in_features} node features; a graph has {found.shape[1]} (build it with "
                f"in_features={found.shape[1]})"
            )
        return found

    def _statistics(self, graphs: Sequence[Graph]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """What is known of the nodes of every graph."""
        return np.array([node_statistics(self._nodes(graph).numpy()) for graph in graphs])

    def _divided(self) -> Tensor:
        """The member that each graph is not shown to, ``[T]``: with node features, graphs that its votes are then judged by.

        -1 for a graph that all members learn from.
        """
        found = torch.full((len(self),), -1)
        if self.model.in_features:
            members = len(self.model.members)
            for number, (_, part) in enumerate(
                folds(self.labelled.labels.numpy(), self.chosen.seed + 1, max(_PARTS, members))
            ):
                found[torch.from_numpy(part)] = number if number < members else -1
        return found

    @property
    def _both(self) -> bool:
        return isinstance(self.budget, list)

    @property
    def _pairwise(self) -> bool:
        """Whether several flips are taken for as many times the worst one.

        With node features a node has so many views a few flips away that the plain knapsack is far above the truth, and slow.
        Several times the worst flip is no bound, and no certificate rests on it, but as a training target it is nearer.
        """
        return self._featured and not self._both

    @property
    def _bound(self) -> float:
        return _BOUND[self._featured]

    @property
    def _sharp(self) -> float:
        return _SHARP[self._featured]

    @property
    def _featured(self) -> bool:
        return bool(self.model.in_features)

    @property
    def flips(self) -> int:
        """The largest number of flips."""
        return self.most[0] if isinstance(self.budget, int) else sum(self.most)

    @property
    def _top(self) -> float:
        """Share of the batches that prepare for the largest budget: a large one must not crowd out small ones."""
        return min(_TOP, 1 / self.flips)

    @property
    def entries(self) -> int:
        return 0

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "mix": _MIX,
            "bound": self._bound,
            "sharp": self._sharp,
            "full": _FULL,
            "top": self._top,
        }

    def fingerprint(self) -> dict[str, Any]:
        return {
            "features": self.features.spec or "a function",
            "graphs": self.labelled.digest(),
            "validation": None if self.held_out is None else len(self.held_out.labels),
        }

    def batches(self, epoch: int) -> Iterator[Tensor]:
        return shuffled(self.labelled.sizes, self.chosen.batch_size, seed=self.chosen.seed, epoch=epoch)

    def losses(self, members: Tensor, step: int) -> Iterator[Outcome]:
        ramp = _between(step / max(1, self.steps), *_RAMP[self._featured])
        voters = self.model.members
        draws = keyed_draws("training budget", self.chosen.seed, step, (len(voters), 4)).astype(np.int64) / 2**32
        late = _between(step / max(1, self.steps), *_BOUNDED)
        # each for itself: together they would be one larger network
        for number, (voter, drawn) in enumerate(zip(voters, draws, strict=True)):
            shown = members[self.not_shown_to[members] != number]
            if len(shown):
                yield self._outcome(self.graphs, shown, self._drawn(drawn), ramp, late, voter)

    @torch.no_grad()
    def finish(self) -> None:
        """Find how loud votes may be, for each number of flips to withstand."""
        if not self.model.in_features or (self.not_shown_to < 0).all():
            return
        if self._both:
            asked = [TrainingAttack(self.flips, *self.most, self.flips)]
        else:
            numbers = range(1, min(self.flips, len(self.model.loudness)) + 1)
            asked = [TrainingAttack(number, number, number, number) for number in numbers]
        self.model.hear([self._best_volume(attack) for attack in asked])

    def _best_volume(self, attack: TrainingAttack) -> float:
        """The volume of votes at which most graphs that they were not learnt from keep their lead under attack.

        It is 0 unless another is better by more than a standard error of the difference: votes that do not help are left out.
        """
        kept, weights = [], []
        for number, voter in enumerate(self.model.members):
            judges = torch.nonzero(self.not_shown_to == number)[:, 0]
            for part in torch.split(judges, _VALIDATION_BATCH) if len(judges) else ():
                leads, worst = self._attacked(self.graphs, part, attack, voter)[:2]
                alone = self.graphs.odds_leads(self.model, part)
                kept.append(torch.stack([(alone + loud * (leads - worst) > 0).all(dim=1) for loud in _VOLUMES]))
                weights.append(self.class_weight[self.graphs.labels[part]])
        weighted = torch.cat(kept, dim=1).double() * torch.cat(weights)
        best = int(weighted.mean(dim=1).argmax())
        gain = weighted[best] - weighted[-1]
        sure = int((gain != 0).sum()) > 1 and float(gain.sum()) > float(gain.std()) * len(gain) ** 0.5
        return _VOLUMES[best] if sure else 0.0

    def validation(self) -> Iterator[Outcome] | None:
        return None if self.held_out is None else self._validated(self.held_out)

    def _validated(self, held_out: ReachedViews) -> Iterator[Outcome]:
        for part in torch.split(torch.arange(len(held_out.labels)), _VALIDATION_BATCH):
            yield self._outcome(held_out, part, TrainingAttack(self.flips, *self.most, self.flips), 1.0, 1.0)

    def _drawn(self, draws: np.ndarray[Any, np.dtype[np.float64]]) -> TrainingAttack:
        """The attack of a step, from numbers in [0, 1)."""
        if isinstance(self.budget, int):
            budget = flips = self.flips
            if draws[0] >= self._top:
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
        voters: Voters | None = None,
    ) -> Outcome:
        """Mean loss over graphs, with the part that the worst attack has in it; of one of the members, or of all together."""
        leads, worst, right = self._attacked(views, members, attack, voters, ramp > 0)
        bound, sharp = late * self._bound, 1 + late * (self._sharp - 1)
        alone, under_attack = (bounded_loss(sharp * lead, bound) for lead in (leads, leads - ramp * worst))
        each = (1 - _MIX) * alone + _MIX * under_attack
        weights = self.class_weight[views.labels[members]]
        return Outcome((each * weights).sum() / weights.sum(), float(right.sum()), len(members))

    def _attacked(
        self,
        views: ReachedViews,
        members: Tensor,
        attack: TrainingAttack,
        voters: Voters | None,
        attacked: bool = True,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Leads, what the worst attack takes from them, and who is right; see :meth:`ReachedBatch.leads`."""
        times = 1
        if self._pairwise:
            attack, times = TrainingAttack(attack.budget, 1, 1, 1), attack.flips
        leads, worst, right = views.batch(members).leads(self.model, attack, attacked=attacked, voters=voters)
        return leads, times * worst, right


def bounded_loss(leads: Tensor, bound: float) -> Tensor:
    """Loss of each graph ``[B]`` from its leads over all rivals ``[B, C - 1]``: at most ``1 / bound``; for 0 the cross-entropy.

    >>> bounded_loss(torch.tensor([[50.0, 60.0], [-1000.0, 1.0]]), 0.5).tolist()
    [0.0, 2.0]
    """
    log_share = -torch.logsumexp(torch.cat([torch.zeros_like(leads[:, :1]), -leads], dim=1), dim=1)
    return -log_share if bound == 0 else -torch.expm1(bound * log_share) / bound


def check_local(model: Any) -> None:
    """Refuse anything but a local network."""
    if not isinstance(model, Local):
        raise InputError(
            f"budget is for local networks; got {type(model).__name__} (train a flipproof.models.Local, or leave it out)"
        )


def check_labels(labelled: LabelledGraphs, model: Local) -> None:
    """Refuse labels without a class."""
    highest = int(labelled.labels.max())
    if highest >= model.num_classes:
        raise InputError(
            f"the model must have a class for every label; got {model.num_classes} classes and label {highest} "
            f"(build it with num_classes={highest + 1})"
        )


def recurrence(graphs: Sequence[Graph], labels: Sequence[int]) -> float:
    """Share of the graphs whose label is that of most other graphs with the same degrees.

    Where it is high, what was seen comes back, and knowing it in detail pays. Where graphs of one size differ, or their labels
    do, details are learnt by heart in vain.

    >>> path, star = Graph(4, [(0, 1), (1, 2), (2, 3)]), Graph(4, [(0, 1), (0, 2), (0, 3)])
    >>> recurrence([path, path, star, star], [0, 0, 1, 1]), recurrence([path, path, star, star], [0, 1, 0, 1])
    (1.0, 0.0)
    """
    seen: dict[bytes, Counter[int]] = {}
    keys = [np.sort(np.bincount(graph.edges.ravel(), minlength=graph.num_nodes)).tobytes() for graph in graphs]
    for key, label in zip(keys, labels, strict=True):
        seen.setdefault(key, Counter())[label] += 1
    found = 0
    for key, label in zip(keys, labels, strict=True):
        others = seen[key] - Counter([label])
        found += bool(others) and all(others[label] > count for rival, count in others.items() if rival != label)
    return found / len(keys)


def _between(done: float, start: float, end: float) -> float:
    """0 up to the start, 1 from the end on, and linear between."""
    return min(1.0, max(0.0, (done - start) / (end - start)))


def _hook(features: Any, model: Local) -> NodeFeatures:
    """The node features; the default of other networks, degrees, stands for the graphs' own."""
    if not model.in_features:
        return Constant()
    hook = as_features("own" if features in (None, "degree") else features)
    if hook.reads_edges:
        raise InputError(
            f"a local network needs features that do not depend on edges; got {hook.spec or 'a function'} (it counts "
            "neighbours itself: pass features=None for the graphs' own)"
        )
    return hook
