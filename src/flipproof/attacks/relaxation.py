"""The gradient attack: a torch module's logits as a differentiable function of flips between 0 and 1, descended and rounded."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.attacks.attack_space import Space
from flipproof.attacks.search import Best
from flipproof.classifiers.features import Function
from flipproof.classifiers.shortcuts import Shortcut
from flipproof.classifiers.torch_module import DenseClassifier, MessagePassingClassifier, logit_per_class
from flipproof.defences.changed_nodes import are_labels
from flipproof.defences.target import CopiesTarget, Target
from flipproof.errors import InputError
from flipproof.graphs import pairs_of_slots

_MOST_NODES = 400
_STEPS = 60
_RATE = 0.7
_ROUNDINGS = 96


def gradient_search(target: Target, space: Space, rng: np.random.Generator) -> Best:
    """Descend, then evaluate roundings: the largest entries, and random sets drawn by them."""
    if target.graph.node is not None:
        raise InputError("the gradient attack is for graphs; got a node (use greedy or random)")
    weights = _descended(target, space)[space.columns]
    noise = rng.gumbel(size=(_ROUNDINGS, len(weights)))
    noise[0] = 0
    keys = np.log(weights + 1e-6) + noise  # the largest of such keys are a sample without replacement
    orders = space.columns[np.argsort(-keys, axis=1, kind="stable")]
    sets = np.array([space.first_fitting(order) for order in orders])
    nested = np.where(np.tri(space.size, dtype=np.bool_), sets[:1], -1)
    candidates = np.concatenate([nested, sets[1:]])
    outcome = target.evaluate(candidates)
    fooled = np.flatnonzero(outcome.fooled[: len(nested)])
    # the smallest of the nested sets, if any
    return Best.at(int(fooled[0]) if len(fooled) else None, candidates, outcome)


def _descended(target: Target, space: Space) -> NDArray[np.float64]:
    """Relaxed flips of every slot, and changes of every entry of the node features if there may be any, ``[N]`` or ``[N + n d]``.

    They lie in [0, 1], and the sum of either kind is at most its budget.
    """
    relaxation = Relaxation(target)
    features = target.graph.node_features
    allowed = np.zeros(target.graph.num_slots + (features.size if space.changes and features is not None else 0))
    allowed[space.columns] = 1
    flips = np.zeros_like(allowed)
    kinds = (space.slots, space.budget), (space.entries, space.changes)
    for step in range(1, _STEPS + 1):
        if target.room is not None and target.room < -(-relaxation.copies // target.cost) + _ROUNDINGS + space.size:
            break
        slope = relaxation.slope(flips) * allowed
        if not slope.any():
            break
        for part, budget in kinds:
            largest = np.abs(slope[part]).max(initial=0) or 1
            flips[part] = _projected(flips[part] - _RATE / step**0.5 * slope[part] / largest, budget)
    return flips


def _projected(flips: NDArray[np.float64], budget: int) -> NDArray[np.float64]:
    """The nearest point with entries in [0, 1] and sum at most the budget: shift down and clip, by bisection."""
    if np.clip(flips, 0, 1).sum() <= budget or not len(flips):
        return np.clip(flips, 0, 1)
    low, high = flips.min() - 1, flips.max()
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.clip(flips - middle, 0, 1).sum() > budget else (low, middle)
    return np.asarray(np.clip(flips - high, 0, 1))


class Relaxation:
    """The label's mean margin as a differentiable function of flips, and of changes of node features, in [0, 1]."""

    def __init__(self, target: Target) -> None:
        graph, used = target.graph, target.classifier
        classifier = used.original if isinstance(used, Shortcut) else used
        if not isinstance(classifier, (DenseClassifier, MessagePassingClassifier)):
            raise InputError(
                f"the gradient attack needs a torch module; got a {classifier.path} classifier (use greedy or random)"
            )
        if graph.num_nodes > _MOST_NODES:
            raise InputError(
                f"the gradient attack takes graphs of at most {_MOST_NODES} nodes; got {graph.num_nodes} (use greedy)"
            )
        self.target, self.graph, self.classifier, self.dtype = target, graph, classifier, classifier.dtype
        self._clean = torch.from_numpy(graph.slot_states.copy()).to(self.dtype)
        self._u, self._v = torch.from_numpy(pairs_of_slots(graph.slots, graph.num_nodes).T.copy())
        frozen = graph.replaced(edges=pairs_of_slots(graph.frozen_edge_slots, graph.num_nodes))
        self._fixed = torch.from_numpy(frozen.adjacency()).to(self.dtype)
        still = np.zeros((1, graph.num_slots), dtype=np.bool_)
        empty, edge = still, ~still
        if isinstance(target, CopiesTarget):
            empty, edge = target.if_empty[: target.relaxed], target.if_edge[: target.relaxed]
        self._empty, self._edge = (torch.from_numpy(part).to(self.dtype) for part in (empty, edge))
        self._refuse_difference()

    @property
    def copies(self) -> int:
        return len(self._empty)

    def slope(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Gradient of the mean margin, squashed so that copies near the decision count most and none for nothing."""
        self.target.calls += self.copies
        flips = torch.from_numpy(values).to(self.dtype).requires_grad_(True)
        states = self._clean + flips[: len(self._clean)] * (1 - 2 * self._clean)
        own = self._changed(flips[len(self._clean) :])
        logits = self.logits((1 - states) * self._empty + states * self._edge, own)
        others = torch.arange(logits.shape[1]) != self.target.label
        margins = logits[:, self.target.label] - logits[:, others].amax(dim=1)
        (slope,) = torch.autograd.grad(torch.nn.functional.softsign(margins).mean(), flips)
        return slope.numpy().astype(np.float64)

    def _changed(self, changes: Tensor) -> Tensor | None:
        """The node features in every copy, for changes of entries ``[n d]`` in [0, 1]; ``None`` where there are none.

        They are linear in each node's label, and in each bit: mixed from what copies show if all nodes have the same.
        """
        clean = self.graph.node_features
        if clean is None or not len(changes):
            return None
        own = torch.from_numpy(clean.copy()).to(self.dtype)
        weights, labels = changes.view(own.shape), are_labels(clean)
        if labels:
            own = own * (1 - weights.sum(dim=1, keepdim=True)) + weights
            alike, parts = np.eye(clean.shape[1])[:, None], own.T.unsqueeze(2)
        else:
            own = own + weights * (1 - 2 * own)
            alike, parts = np.array([0.0, 1.0])[:, None, None], torch.stack([1 - own, own])
        mixed = torch.zeros(1, *own.shape, dtype=self.dtype)
        for rows, part in zip(alike, parts, strict=True):
            graph = self.graph.replaced(node_features=np.broadcast_to(rows, clean.shape).astype(clean.dtype))
            shown = self.target.features_of(graph)
            copies = np.array(graph.node_features)[None] if shown is None else np.array(shown[: self.copies])
            mixed = mixed + torch.from_numpy(copies).to(self.dtype) * part
        return mixed.to(self.classifier.device)

    def logits(self, states: Tensor, own: Tensor | None = None) -> Tensor:
        """The module's logits for slots in [0, 1], ``[B, N]``, on the CPU; by default for the graph's own node features."""
        count, n = len(states), self.graph.num_nodes
        adjacency = self._fixed.repeat(count, 1, 1)
        adjacency[:, self._u, self._v] = states
        adjacency[:, self._v, self._u] = states
        adjacency = adjacency.to(self.classifier.device)
        mask = torch.ones(count, n, dtype=torch.bool, device=adjacency.device)
        if own is None:
            own = self.classifier.own_features(self.target.batch(np.tile(self.graph.slot_states, (count, 1))))
        rows = None if own is None else own.expand(count, *own.shape[-2:])
        seen = adjacency
        if isinstance(self.classifier.features, Function):
            # it knows whole graphs only: its features are taken at the nearest one, without slope
            seen, rows = adjacency.detach().round(), None if rows is None else rows.detach().round()
        x = self.classifier.as_number(self.classifier.features.dense(seen, mask, rows))
        if isinstance(self.classifier, DenseClassifier):
            result: Tensor = self.classifier.module(x, adjacency, *((mask,) if self.classifier._with_mask else ()))
        else:
            result = self._by_messages(self.classifier, x, adjacency)
        return logit_per_class(result, count, self.classifier.num_classes).to("cpu", self.dtype)

    def _by_messages(self, classifier: MessagePassingClassifier, x: Tensor, adjacency: Tensor) -> Tensor:
        count, n = adjacency.shape[:2]
        whole = ~torch.eye(n, dtype=torch.bool, device=adjacency.device).expand(count, n, n)
        graph, source, sink = torch.nonzero(whole, as_tuple=True)
        index = torch.stack([source, sink]) + graph * n
        owner = torch.arange(count, device=adjacency.device).repeat_interleave(n)
        with _weighted(classifier.module, adjacency[whole], index[1], count * n):
            result: Tensor = classifier._call(x.flatten(0, 1), index, owner)
        return result

    def _refuse_difference(self) -> None:
        """The relaxation must agree with the model on whole graphs; tried on the clean graph and on a scrambled one."""
        states = np.stack([self.graph.slot_states, np.random.default_rng(0).random(self.graph.num_slots) < 0.5])
        with torch.no_grad():
            relaxed = self.logits(torch.from_numpy(states).to(self.dtype)).numpy()
        wanted = self.target.logits(states)
        self.target.calls += 2 * len(states)
        if not np.allclose(relaxed, wanted, rtol=1e-3, atol=1e-3 * max(1.0, float(np.abs(wanted).max()))):
            raise InputError(
                f"the gradient attack cannot weigh the edges of {type(self.classifier.module).__name__}: its logits with "
                "weights 0 and 1 are not those on the graph itself (use greedy or random)"
            )


@contextmanager
def _weighted(module: torch.nn.Module, weights: Tensor, sinks: Tensor, nodes: int) -> Iterator[None]:
    """All message-passing layers inside weigh their messages by these weights ``[E]`` of edges into the nodes ``sinks``."""
    from torch_geometric.nn import MessagePassing

    totals = weights.new_zeros(nodes).index_add(0, sinks, weights)
    shares = weights * (torch.bincount(sinks, minlength=nodes) / totals.clamp(min=1))[sinks]  # of a mean over all edges

    def with_weight(layer: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return arguments, {**named, "edge_weight": shares if layer.aggr == "mean" else weights}

    def weighed(layer: Any, inputs: Any, messages: Tensor) -> Tensor:
        if messages.shape[0] != len(weights):  # the layer added edges of its own
            return messages
        return messages * (shares if layer.aggr == "mean" else weights).view(-1, *[1] * (messages.ndim - 1))

    def attended(layer: Any, inputs: Any, attention: Tensor) -> Tensor:
        """A softmax over all edges as one over those that are there; loops that the layer added stand last."""
        loops, into = attention.new_ones(len(attention) - len(weights)), inputs[0][1]
        parts = attention * torch.cat([weights, loops]).view(-1, *[1] * (attention.ndim - 1))
        return parts / (parts.new_zeros(nodes, *parts.shape[1:]).index_add(0, into, parts)[into] + 1e-16)

    with ExitStack() as handles:
        for layer in module.modules():
            if isinstance(layer, MessagePassing):
                if "edge_weight" in inspect.signature(layer.forward).parameters:
                    handle = layer.register_forward_pre_hook(with_weight, with_kwargs=True)
                elif type(layer).edge_update is not MessagePassing.edge_update:
                    handle = layer.register_edge_update_forward_hook(attended)
                else:
                    handle = layer.register_message_forward_hook(weighed)
                handles.callback(handle.remove)
        yield
