"""Models that classify single nodes: a row of logits per node of a noisy copy, which they see one at a time.

A copy that is alone cannot change the answers about another one, and rounding does not depend on how many copies there are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers.classifier import Probed, subsets
from flipproof.classifiers.guard import probe_batch
from flipproof.classifiers.torch_module import TorchClassifier, hidden_width, largest_batch, to_device, widest_layer
from flipproof.errors import InputError
from flipproof.graphs import Graph, IntArray
from flipproof.noise import EdgeNoise, Neighbours, NoisyBatch, SampleStream

_BUDGET = 2**26  # bytes of the lists of edges of a batch
_BYTES_PER_ROW = 160  # of a message or node, for the lists of edges
_COPIES = 4  # arrays of messages, or of values in the layers, alive at once


class NodeClassifier(TorchClassifier):
    """``forward(x, edge_index)`` or ``forward(x, edge_index, batch)`` with a row of logits per node."""

    path = "nodes"
    _expected = "(x, edge_index)"

    def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
        parameters = inspect.signature(module.forward).parameters
        if "edge_index" not in list(parameters)[1:2]:
            raise InputError(
                "a model for nodes must have forward(x, edge_index) or forward(x, edge_index, batch); "
                f"{type(module).__name__} takes ({', '.join(parameters)}) (return a row of logits per node, without pooling)"
            )
        super().__init__(module, **settings)
        self._module: Any = module
        self._with_batch = "batch" in parameters
        self._in_steps = hasattr(module, "on_first") and self.device.type == "cpu" and self.dtype == torch.float32

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return largest_batch(int(_BYTES_PER_ROW * (2 * edges + graph.num_nodes)), _BUDGET)

    def bytes_each(self, graph: Graph, edges: float) -> float:
        rows = 2 * edges + graph.num_nodes
        if self._in_steps:
            widths = [weight.shape[0] for weight in self.module.parameters() if weight.ndim > 1]
            return rows * _BYTES_PER_ROW + graph.num_nodes * _COPIES * 4 * max(widths)
        return rows * (_BYTES_PER_ROW + _COPIES * 4 * widest_layer(self.module, graph)) + hidden_width(graph) * 8

    def probe(self, graph: Graph, noise: EdgeNoise, chosen: Any = subsets) -> Probed:
        raise InputError(
            "the model's forward takes no batch, so that it cannot tell several graphs apart; expected (x, edge_index, batch) "
            "(certify_nodes certifies a model with a row of logits per node)"
        )

    def logits(self, batch: NoisyBatch) -> NoReturn:
        raise AssertionError("a node model sees noisy copies one at a time")

    def try_on_nodes(self, graph: Graph, noise: EdgeNoise) -> None:
        """Ask about deliberately different graphs on these nodes and a noisy copy, in two orders; refuse a model that answers
        otherwise the second time, or with something else than a row of logits per node."""
        batch, backwards = probe_batch(graph, noise), slice(None, None, -1)
        try:
            first, second = self.node_labels(batch), self.node_labels(batch.only(np.arange(batch.size)[backwards]))
        except InputError:
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "")
            raise InputError(
                f"the model failed on noisy copies of a graph of {graph.num_nodes} nodes "
                f"({type(error).__name__}: {reason}); expected it to take {self.expectation(graph)} "
                "(check the features and the model's input width)"
            ) from error
        if not np.array_equal(first, second[backwards]):
            raise InputError(
                "the model must be a function of the noisy graph alone; it gave different answers about the same graph when it "
                "was asked twice; certificates would be false (dropout or other randomness, or a cache?)"
            )

    def node_labels(self, batch: NoisyBatch, ones: list[IntArray] | None = None) -> NDArray[np.int64]:
        """The label of every node of every copy, ``[B, n]``; equal logits go to the smaller label.

        Args:
            batch: The noisy copies.
            ones: Where noise reaches the node features: of every copy the cells ``node * d + column`` that are 1, ascending.
        """
        answers = self._read(batch, ones, lambda scores: scores.argmax(axis=1))
        return np.array(answers, dtype=np.int64).reshape(batch.size, batch.num_nodes)

    def scores_of(self, node: int, batch: NoisyBatch, ones: list[IntArray] | None = None) -> NDArray[np.float64]:
        """The logits of one node in every copy, ``[B, C]``; the other arguments are those of :meth:`node_labels`."""
        return np.array(self._read(batch, ones, lambda scores: scores[node].astype(np.float64)))

    def label_of(self, graph: Graph) -> int:
        assert graph.node is not None
        batch = SampleStream(graph, EdgeNoise(add=0, remove=0), seed=0).batch(0, 1)[0]
        return int(self.node_labels(batch)[0, graph.node])

    def _read(
        self, batch: NoisyBatch, ones: list[IntArray] | None, read: Callable[[NDArray[Any]], NDArray[Any]]
    ) -> list[NDArray[Any]]:
        """What is read of the logits of all nodes ``[n, C]``, copy by copy."""
        nodes, (starts, places), answers = batch.num_nodes, batch.neighbours, list[NDArray[Any]]()
        with torch.inference_mode():
            clean, known, first = self._once(batch)
            # our own network adds up rows of weights where noise reaches the features, and nothing else computes them
            sums_rows = ones is not None and self._in_steps and known is not None and known is clean
            if ones is not None:
                first = None
            for copy in range(batch.size):
                begins = starts[copy * nodes : (copy + 1) * nodes + 1]
                lists, own = Neighbours(begins - begins[0], places[begins[0] : begins[-1]]), clean
                if ones is not None and sums_rows:
                    first = self._module.first_of(ones[copy], nodes).numpy()
                elif ones is not None and clean is not None:
                    own = torch.zeros_like(clean).view(-1).index_fill_(0, to_device(ones[copy], self.device), 1)
                    own = own.view_as(clean)
                    known = self.features.shared(nodes, own)
                scores = self._asked(lists, known, own) if first is None else self._module.on_first(first, *lists)
                answers.append(read(self._checked(scores, nodes)))
        return answers

    def prepare(self) -> None:
        super().prepare()
        self._kept: tuple[Any, ...] = (None,)  # weights may have changed

    def _once(self, batch: NoisyBatch) -> tuple[Tensor | None, Tensor | None, NDArray[Any] | None]:
        """The graph's own features; those that the model is shown, where no edge can change them; and for our own network
        their product with the first weights."""
        if self._kept[0] is None or self._kept[0] is not batch.node_features:
            clean = self.own_features(batch)
            known = self.features.shared(batch.num_nodes, clean)
            first = self._module.first(known).numpy() if self._in_steps and known is not None else None
            self._kept = batch.node_features, clean, known, first
        clean, known, first = self._kept[1:]
        return clean, known, first

    def _asked(self, lists: Neighbours, x: Tensor | None, own: Tensor | None) -> NDArray[Any]:
        """The module's own answer about one copy, of which the nodes have these neighbours."""
        sources = np.repeat(np.arange(len(lists.starts) - 1), np.diff(lists.starts))
        edge_index = to_device(np.stack([sources, lists.places.astype(np.int64)]), self.device)
        batch = torch.zeros(len(lists.starts) - 1, dtype=torch.int64, device=self.device)
        x = self.as_number(self.features.sparse(edge_index, batch, own) if x is None else x)
        logits = self._module(x, edge_index, batch=batch) if self._with_batch else self._module(x, edge_index)
        if not isinstance(logits, Tensor):
            raise InputError(
                f"the model must return a tensor of logits [nodes, num_classes]; got {type(logits).__name__} "
                "(wrap it so that forward returns the logits only)"
            )
        scores: NDArray[Any] = logits.detach().to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()
        return scores

    def _checked(self, scores: NDArray[Any], nodes: int) -> NDArray[Any]:
        if scores.shape != (nodes, self.num_classes):
            pooled = scores.ndim == 2 and len(scores) == 1 < nodes
            remedy = "a model for graphs is certified by certify" if pooled else "check num_classes"
            raise InputError(
                f"the model must return logits [nodes, num_classes] = [{nodes}, {self.num_classes}]; got shape "
                f"{list(scores.shape)} ({remedy})"
            )
        if np.isnan(scores).any():
            raise InputError("the model returned NaN for a noisy graph; expected numbers (check weights and features)")
        return scores
