"""What all torch modules have in common: mode, device, number type, and how a module wants its batches."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from flipproof.classifiers import unwrapped
from flipproof.classifiers.classifier import DEFAULT_MEMORY, Classifier
from flipproof.classifiers.features import NodeFeatures
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import BLOCK, NoisyBatch

__all__ = ["CONVENTIONS", "TorchClassifier", "convention_of"]

CONVENTIONS = ("pyg", "dense", "data")
_WIDTH = 64  # assumed width of the hidden layers


class TorchClassifier(Classifier):
    """A torch module, called without gradients on its own device."""

    def __init__(
        self, module: torch.nn.Module, *, num_classes: int, features: NodeFeatures, memory: int = DEFAULT_MEMORY
    ) -> None:
        self.module, self.num_classes, self.features, self.memory = module, num_classes, features, memory
        self.reads_own_features = features.reads_own
        self.edge_blind = bool(getattr(module, "edge_blind", False))
        self.prepare()

    threads = True

    @property
    def forks(self) -> bool:  # type: ignore[override]
        """Whether the model survives a fork of the process."""
        return self.device.type == "cpu"

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """While entered, torch computes on one thread."""
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)

    def prepare(self) -> None:
        weights = [weight for weight in self.module.parameters() if weight.is_floating_point()]
        self.device = weights[0].device if weights else torch.device("cpu")
        self.dtype = weights[0].dtype if weights else torch.float32
        for name, part in self.module.named_modules():
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

    def scores(self, batch: NoisyBatch) -> NDArray[Any]:
        with torch.inference_mode():
            logits = self.logits(batch)
        if not isinstance(logits, Tensor):
            raise InputError(
                "the model must return a tensor of logits [graphs, num_classes]; got "
                f"{type(logits).__name__} (wrap it so that forward returns the logits only)"
            )
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()

    @abstractmethod
    def logits(self, batch: NoisyBatch) -> Tensor:
        """The module's answer."""

    def own_features(self, batch: NoisyBatch) -> Tensor | None:
        """The graph's own node features ``[n, d]`` on the module's device."""
        if batch.node_features is None:
            return None
        return self.as_number(torch.from_numpy(batch.node_features.copy()).to(self.device))

    def as_number(self, values: Tensor) -> Tensor:
        """Floating values in the module's own type; integers (for embeddings) as they are."""
        return values.to(self.dtype) if values.is_floating_point() else values


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


def convention_of(module: torch.nn.Module, *, given: tuple[str, ...] = ()) -> str:
    """``pyg`` for forward(x, edge_index, batch), ``dense`` for forward(x, adj, mask), ``data`` for forward(data).

    ``given`` are further arguments that it will be called with.
    """
    parameters = list(inspect.signature(unwrapped(module).forward).parameters.values())
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [parameter for parameter in parameters if parameter.kind not in open_ended]
    names = [parameter.name for parameter in named]
    needed = [parameter.name for parameter in named if parameter.default is parameter.empty]
    if names[1:2] in (["adj"], ["adjacency"]):
        return "dense"
    if "edge_index" in names[1:]:
        extra = [name for name in needed if name not in ("edge_index", names[0], *given) and "batch" not in name]
        if extra:
            raise InputError(
                f"the model's forward needs {extra[0]}, which noisy graphs do not have: an edge that the "
                "noise adds has no attributes (give it a default, or pass edge_features=function, which makes edge_attr from the "
                "features of the two end nodes)"
            )
        if len(parameters) == 2:
            raise InputError(
                "the model's forward takes no batch, so that it cannot tell several graphs apart; expected "
                "(x, edge_index, batch) (let it pool with global_mean_pool(x, batch) or the like)"
            )
        return "pyg"
    if len(needed) == 1 and names[0] in ("data", "batch", "graph"):
        return "data"
    shown = ", ".join(map(_shown, parameters))
    raise InputError(
        f"cannot tell how to call the model: forward takes ({shown}); expected (x, edge_index, batch), "
        '(x, adj, mask) or (data) (say convention="pyg", "dense" or "data")'
    )


def _shown(parameter: inspect.Parameter) -> str:
    return str(parameter).partition(":")[0].partition("=")[0].strip()


def feature_width(features: NodeFeatures, graph: Graph) -> str:
    """The features' shape in words, for error messages."""
    try:
        found = features.of(graph)
        kind = "integer features" if not found.is_floating_point() else "features"
        return f"{kind} [{graph.num_nodes}, {found.shape[1]}]"
    except InputError:
        return "node features"


def repeated(own: Tensor | None, times: int) -> Tensor | None:
    """The same rows for each of several graphs."""
    return None if own is None else own.repeat(times, 1)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """A numpy array on the module's device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)
