"""What all torch modules have in common: mode, device, number type, and how a module wants its batches."""

from __future__ import annotations

import inspect
import warnings
from abc import abstractmethod
from collections.abc import Callable
from copy import deepcopy
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers import unwrapped
from flipproof.classifiers.classifier import DEFAULT_MEMORY, Classifier, Probed, Subsets, assumed_edges, subsets
from flipproof.classifiers.features import NodeFeatures
from flipproof.classifiers.guard import FLOAT32, Arithmetic
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, EdgeNoise, FeatureNoise, NoisyBatch

CONVENTIONS = ("pyg", "dense", "data", "nodes")
_WIDTH = 64  # assumed width of the hidden layers


class TorchClassifier(Classifier):
    """A torch module, called without gradients on its own device."""

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        num_classes: int,
        features: NodeFeatures,
        memory: int = DEFAULT_MEMORY,
        feature_noise: FeatureNoise | None = None,
    ) -> None:
        self.module, self.num_classes, self.features, self.memory = module, num_classes, features, memory
        self.feature_noise = feature_noise
        self.reads_own_features = features.reads_own
        self.edge_blind = bool(getattr(module, "edge_blind", False))
        self.prepare()
        _keep_freed_memory()

    @property
    def forks(self) -> bool:  # type: ignore[override]
        return self.device.type == "cpu"

    def prepare(self) -> None:
        parts = list(self.module.named_modules())
        held = [weight for _, part in parts for weight in part._parameters.values() if weight is not None]
        weights = [weight for weight in held if weight.is_floating_point()]
        self.device = weights[0].device if weights else torch.device("cpu")
        self.dtype = weights[0].dtype if weights else torch.float32
        # inputs are made in float32, and a module may mix number types: the coarsest counts
        coarsest = max([torch.finfo(kind).eps for kind in {weight.dtype for weight in weights}], default=0.0)
        self.unit_roundoff = max(FLOAT32, coarsest / 2)
        for name, part in parts:
            if part.training:
                raise InputError(
                    f"the model must be in evaluation mode; {name or 'the module itself'} is in training "
                    "mode (call model.eval() first)"
                )
            if getattr(part, "cached", False) is True:
                raise InputError(
                    f"layer {name} has cached=True and would reuse the first graph it sees for all others "
                    "(build it with cached=False)"
                )
            if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is None:
                raise InputError(
                    f"layer {name} normalises by the statistics of the batch: a graph's answer would depend "
                    "on the others beside it (build it with track_running_stats=True, or use LayerNorm)"
                )

    def arithmetic(self, nodes: int) -> Arithmetic:
        # every matrix of weights sums over its inputs, and at most once over the nodes
        widths = [weight.shape[-1] for weight in self.module.parameters() if weight.ndim > 1] or [1]
        return Arithmetic.of_sums([*widths, *[nodes] * len(widths)], self.unit_roundoff)

    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        with torch.inference_mode():
            logits = self.logits(batch)
        if not isinstance(logits, Tensor):
            raise InputError(
                "the model must return a tensor of logits [graphs, num_classes]; got "
                f"{type(logits).__name__} (wrap it so that forward returns the logits only)"
            )
        self._one_logit = logits.numel() == batch.size
        logits = logit_per_class(logits, batch.size, self.num_classes)
        return logits.detach().to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()

    def finer(self) -> Classifier | None:
        if any(weight.dtype == torch.float64 for weight in self.module.parameters()):
            return None
        try:
            double = deepcopy(self)
            double.take_double()
        except Exception:  # a module that cannot be copied or has no double precision
            return None
        return double

    def take_double(self) -> None:
        """Go on in double precision; of a copy."""
        self.module.double()
        self.prepare()

    _one_logit = False  # of the last answer

    def probe(self, graph: Graph, noise: EdgeNoise, chosen: Callable[[int], Subsets] = subsets) -> Probed:
        tried = super().probe(graph, noise, chosen)
        if self._one_logit:
            logits = tried.scores[:, 1]
            if ((logits >= 0) & (logits <= 1)).all():
                warnings.warn(
                    "the model's one output per graph was between 0 and 1 wherever it was tried, like a probability; it is read "
                    "as a logit, above 0 for class 1 (return it without sigmoid)",
                    stacklevel=2,
                )
        return tried

    def itself(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        """The way to such graphs without a shortcut."""
        return self

    def suited(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        return self.itself(graph, noise)

    @abstractmethod
    def logits(self, batch: NoisyBatch) -> Tensor:
        """The module's answer."""

    _expected = ""  # what the module is called with

    def expectation(self, graph: Graph) -> str:
        try:
            rows = self.features.of(graph)
        except InputError:
            return f"{self._expected} with node features"
        kind = "features" if rows.is_floating_point() else "integer features"
        return f"{self._expected} with {kind} [{graph.num_nodes}, {rows.shape[1]}] per graph"

    def own_features(self, batch: NoisyBatch) -> Tensor | None:
        """The graph's own node features on the module's device: ``[n, d]``, or ``[B, n, d]`` under noise."""
        if batch.node_features is None:
            return None
        return self.as_number(torch.from_numpy(batch.node_features.copy()).to(self.device))

    def as_number(self, values: Tensor) -> Tensor:
        """Floating values in the module's own type; integers (for embeddings) as they are."""
        return values.to(self.dtype) if values.is_floating_point() else values


def logit_per_class(logits: Tensor, graphs: int, num_classes: int) -> Tensor:
    """The logits ``[graphs, num_classes]``; of a binary model with one logit ``z`` per graph they are ``(0, z)``.

    Class 1 is then the answer where ``z > 0``. ``z`` is ``[graphs, 1]`` or ``[graphs]``, or a plain number for one graph.
    """
    if num_classes != 2 or logits.numel() != graphs or logits.ndim > 2 or (logits.ndim == 2 and logits.shape[1] != 1):
        return logits
    return torch.stack([torch.zeros_like(logits.reshape(-1)), logits.reshape(-1)], dim=1)


def hidden_width(graph: Graph) -> int:
    """Numbers a node that a batch has to hold: the assumed width of the layers, or that of wider features."""
    return max(_WIDTH, 0 if graph.node_features is None else graph.node_features.shape[1])


def widest_layer(module: torch.nn.Module, graph: Graph) -> int:
    """As :func:`hidden_width`, for a module with wider layers: what memory has to be reckoned with."""
    names = ("in_features", "out_features", "in_channels", "out_channels")
    widths = [getattr(part, name, 0) for part in module.modules() for name in names]
    return max(hidden_width(graph), *(width for width in widths if isinstance(width, int)), 0)


def largest_batch(bytes_per_sample: int, budget: int) -> int:
    """The largest power of two, at most a block, whose samples fit the budget; at least 1."""
    size = BLOCK
    while size > 1 and size * bytes_per_sample > budget:
        size //= 2
    return size


def convention_of(module: torch.nn.Module, *, extra: tuple[str, ...] = ()) -> str:
    """``pyg`` for forward(x, edge_index, batch), ``dense`` for (x, adj, mask), ``data`` for (data), ``nodes`` without batch."""
    parameters = list(inspect.signature(unwrapped(module).forward).parameters.values())
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [parameter for parameter in parameters if parameter.kind not in open_ended]
    names = [parameter.name for parameter in named]
    needed = [parameter.name for parameter in named if parameter.default is parameter.empty]
    if names[1:2] in (["adj"], ["adjacency"]):
        return "dense"
    if "edge_index" in names[1:]:
        unknown = [name for name in needed if name not in ("edge_index", names[0], *extra) and "batch" not in name]
        if unknown:
            raise InputError(
                f"the model's forward needs {unknown[0]}, which noisy graphs do not have: an edge that the "
                "noise adds has no attributes (give it a default, or pass edge_features=function, which makes edge_attr from the "
                "features of the two end nodes)"
            )
        if len(parameters) == 2:
            return "nodes"  # it cannot tell several graphs apart
        return "pyg"
    if len(needed) == 1 and names[0] in ("data", "batch", "graph"):
        return "data"
    shown = ", ".join(str(parameter).partition(":")[0].partition("=")[0].strip() for parameter in parameters)
    raise InputError(
        f"cannot tell how to call the model: forward takes ({shown}); expected (x, edge_index, batch), "
        '(x, adj, mask) or (data) (say convention="pyg", "dense" or "data")'
    )


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A numpy array on the module's device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


@cache
def _keep_freed_memory() -> None:
    """Let glibc keep what a batch frees for the next one: it keeps as much as the largest block freed so far, here untouched."""
    np.empty(2**25 - 2**16, dtype=np.uint8)


EdgeFeatures = Callable[[Tensor, Tensor], Tensor]
"""From the features of the two ends of every edge, ``[E, d]`` each, to those of the edges, ``[E, k]``."""

_BUDGET = 2**26  # bytes of one batch's messages
_COPIES = 4  # arrays of messages alive at once
_BYTES_PER_ROW = 160  # of a message or node, for the lists of edges


class MessagePassingClassifier(TorchClassifier):
    """Noisy copies as one disjoint union; edges in canonical order, both directions.

    Args:
        module, settings: As for :class:`TorchClassifier`.
        call: What is called with ``(x, edge_index, batch)``; by default the module's forward.
        as_data: Whether forward takes one PyG ``Data``.
        edge_features: Makes ``edge_attr`` from the two end nodes, after the noise: an edge that the noise adds then has
            features like any other.
    """

    path = "message passing"

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        call: Callable[[Tensor, Tensor, Tensor], Any] | None = None,
        as_data: bool = False,
        edge_features: EdgeFeatures | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(module, **settings)
        self.as_data, self.edge_features = as_data, edge_features
        self._call = call or partial(self._call_with_data if as_data else self.call_with_batch, module)
        self._edge_argument = None if as_data or edge_features is None else edge_argument(module)
        self._expected = "a PyG Batch of x, edge_index and batch" if as_data else "(x, edge_index, batch)"
        self._batch_by_name = "batch" in inspect.signature(module.forward).parameters

    def wanted_size(self, graph: Graph, edges: float) -> int:
        return largest_batch(int(4 * hidden_width(graph) * (2 * edges + graph.num_nodes)), _BUDGET)

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return (2 * edges + graph.num_nodes) * (_BYTES_PER_ROW + _COPIES * 4 * widest_layer(self.module, graph))

    def inputs(self, batch: NoisyBatch) -> tuple[Tensor, Tensor, Tensor]:
        """``x``, ``edge_index`` and ``batch`` of the union."""
        edge_index, owner = (to_device(part, self.device) for part in batch.edge_index())
        own = self.own_features(batch)
        rows = None if own is None else own.expand(batch.size, *own.shape[-2:]).reshape(len(owner), -1)
        x = self.features.sparse(edge_index, owner, rows)
        return self.as_number(x), edge_index, owner

    def logits(self, batch: NoisyBatch) -> Tensor:
        result: Tensor = self._call(*self.inputs(batch))
        return result

    def _call_with_data(self, module: torch.nn.Module, x: Tensor, edge_index: Tensor, batch: Tensor) -> Any:
        return module(data_batch(x, edge_index, batch, self.edge_features))

    def call_with_batch(self, module: torch.nn.Module, x: Any, edge_index: Any, batch: Any) -> Any:
        options = {}
        if self._edge_argument is not None and self.edge_features is not None:
            options[self._edge_argument] = made_edge_features(self.edge_features, x, edge_index)
        if self._batch_by_name:  # other arguments with defaults may stand before it
            return module(x, edge_index, batch=batch, **options)
        return module(x, edge_index, batch)


def data_batch(x: Tensor, edge_index: Tensor, batch: Tensor, edge_features: EdgeFeatures | None = None) -> Any:
    """A PyG ``Batch`` that refuses to give edge attributes, unless they are made from the end nodes."""
    from torch_geometric.data import Batch

    fields: dict[str, Any] = {"x": x, "edge_index": edge_index, "batch": batch}
    if edge_features is not None:
        fields["edge_attr"] = made_edge_features(edge_features, x, edge_index)
    data = Batch(**fields) if edge_features is not None else Batch(_base_cls=_without_edge_attributes(), **fields)
    data.ptr = torch.searchsorted(batch, torch.arange(int(batch[-1]) + 2, device=batch.device))
    return data


@cache
def _without_edge_attributes() -> type[Any]:
    from torch_geometric.data import Data

    names = ("edge_attr", "edge_weight")

    def refuse(name: str) -> NoReturn:
        raise InputError(
            f"the model's forward reads {name}, which noisy graphs do not have: an edge that the noise adds has no "
            "attributes (pass edge_features=function, which makes edge_attr from the features of the two end nodes, or "
            "train a model that does not read it)"
        )

    class NoisyData(Data):  # type: ignore[misc]
        edge_attr = property(lambda data: refuse("edge_attr"))
        edge_weight = property(lambda data: refuse("edge_weight"))

        def __getitem__(self, key: str) -> Any:
            return refuse(key) if key in names else super().__getitem__(key)

        def __contains__(self, key: str) -> bool:
            return refuse(key) if key in names else bool(super().__contains__(key))

    return NoisyData


def made_edge_features(function: EdgeFeatures, x: Tensor, edge_index: Tensor) -> Tensor:
    """The features of every edge, from those of its two ends."""
    rows = function(x[edge_index[0]], x[edge_index[1]])
    if not isinstance(rows, Tensor) or rows.ndim == 0 or len(rows) != edge_index.shape[1]:
        shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise InputError(
            f"edge_features must return a tensor with one row per edge, [{edge_index.shape[1]}, k]; got {shape} (it is called "
            "with the features of both ends of every edge, [E, d] each)"
        )
    return rows


def edge_argument(module: torch.nn.Module) -> str:
    """The argument of forward that takes edge features."""
    parameters = inspect.signature(module.forward).parameters
    name = next((name for name in ("edge_attr", "edge_weight") if name in parameters), None)
    if name is None or "batch" not in parameters:
        raise InputError(
            f"edge_features need a forward that takes edge_attr and batch by name; it takes ({', '.join(parameters)}) (add the "
            "argument, or leave edge_features out)"
        )
    return name


_CACHE = 2**21  # bytes of one batch's matrices and of one layer's values: measured fastest
_MEMORY = 2**24  # bytes that a batch of few graphs may take all the same
_FEW = 32
_MATRICES, _VALUES = 8, 4  # copies of a sample's matrix, and of its layers' values, that are alive at once
ALWAYS_DENSE = 100  # nodes up to which matrices are always faster than messages
_EDGES_PER_NODE = 4  # that a usual graph of more nodes has
_ENTRIES_PER_EDGE = 60  # of a matrix, which cost as much as an edge's message: measured for our networks


class DenseClassifier(TorchClassifier):
    """``forward(x [B, n, d], adj [B, n, n], mask [B, n]) -> [B, C]``."""

    path = "dense"
    _expected = "(x, adj, mask)"
    _remedy = "raise memory, or use a model in PyG's convention forward(x, edge_index, batch)"

    def __init__(self, module: torch.nn.Module, **settings: Any) -> None:
        super().__init__(module, **settings)
        self._with_mask = len(inspect.signature(module.forward).parameters) != 2
        sparse = getattr(module, "forward_sparse", None)
        self.sparse = sparse and MessagePassingClassifier(module, call=sparse, **settings)

    def itself(self, graph: Graph, noise: EdgeNoise) -> Classifier:
        few = _ENTRIES_PER_EDGE * assumed_edges(graph.num_nodes, noise, _EDGES_PER_NODE) < graph.num_nodes**2
        return self.sparse if self.sparse and few and graph.num_nodes > ALWAYS_DENSE else self

    def wanted_size(self, graph: Graph, edges: float) -> int:
        cached = 4 * graph.num_nodes * (graph.num_nodes + hidden_width(graph))
        return max(largest_batch(cached, _CACHE), min(_FEW, largest_batch(cached, _MEMORY)))

    def bytes_each(self, graph: Graph, edges: float) -> float:
        return bytes_of_values(self.module, graph) + 4 * _MATRICES * graph.num_nodes**2

    def logits(self, batch: NoisyBatch) -> Tensor:
        adjacency = to_device(batch.adjacency(), self.device).to(self.dtype)
        mask = torch.ones(adjacency.shape[:2], dtype=torch.bool, device=adjacency.device)
        own = self.own_features(batch)
        rows = None if own is None else own.expand(batch.size, *own.shape[-2:])
        x = self.as_number(self.features.dense(adjacency, mask, rows))
        result: Tensor = self.module(x, adjacency, mask) if self._with_mask else self.module(x, adjacency)
        return result


def bytes_of_values(module: torch.nn.Module, graph: Graph) -> float:
    """Bytes of a sample's values in the layers."""
    return 4 * graph.num_nodes * _VALUES * widest_layer(module, graph)
