"""The noise as a PyG transform, for a training loop of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info
from torch_geometric.data import Batch
from torch_geometric.transforms import BaseTransform

from flipproof.checks import checked_seed
from flipproof.classifiers.torch_module import made_edge_features
from flipproof.errors import InputError
from flipproof.graphs.conversions import pyg_edge_fields
from flipproof.noise import EdgeNoise
from flipproof.noise.stream import noisy_version

__all__ = ["EdgeFlip"]


class EdgeFlip(BaseTransform):  # type: ignore[misc]
    """Flips node pairs of a PyG ``Data`` at random: the noise under which the model will be certified.

    Give it to a data set as ``transform``, not as ``pre_transform``: every access then is a fresh draw. All other fields survive.
    Node features that depend on edges (degrees, encodings) must be computed after it:
    ``T.Compose([EdgeFlip(noise), T.OneHotDegree(20)])``, and the certified classifier gets ``features=T.OneHotDegree(20)``.

    Args:
        noise: The random flips.
        seed: By default the draws follow torch's generator, also in the workers of a ``DataLoader``; with a seed they do not.
        edge_features: What becomes of fields with an entry per edge, such as ``edge_attr``. ``"drop"`` leaves them out; a
            function makes ``edge_attr`` from the features of both ends of every edge, ``[E, d]`` each. None refuses them.

    >>> from torch_geometric.data import Data
    >>> path = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3, y=torch.tensor([1]))
    >>> flip = EdgeFlip(EdgeNoise(keep=0.6), seed=0)
    >>> flip(path)
    Data(edge_index=[2, 4], y=[1], num_nodes=3)
    """

    draws_noise = True  # certification refuses a data set with this transform

    def __init__(
        self, noise: EdgeNoise, *, seed: int | None = None, edge_features: Callable[[Any, Any], Any] | str | None = None
    ) -> None:
        if not isinstance(noise, EdgeNoise):
            raise InputError(f"noise must be an EdgeNoise; got {noise!r} (for instance EdgeNoise(keep=0.9))")
        if not (edge_features is None or edge_features == "drop" or callable(edge_features)):
            raise InputError(f'edge_features must be a function or "drop"; got {edge_features!r} (None refuses them)')
        self.noise, self.edge_features = noise, edge_features
        self.seed = None if seed is None else checked_seed(seed)
        self._draws = 0

    def forward(self, data: Any) -> Any:
        """A noisy version of a ``Data``; of a ``Batch``, one of every graph in it."""
        if isinstance(data, Batch):
            return Batch.from_data_list([self(part) for part in data.to_data_list()])
        if not hasattr(data, "edge_index"):
            raise InputError(f"EdgeFlip takes a PyG Data; got {type(data).__name__} (for others: noise.sample(graph))")
        if self.edge_features == "drop":
            for field in pyg_edge_fields(data):
                del data[field]
        noisy = noisy_version(data, self.noise, seed=self._next(), edge_features=callable(self.edge_features))
        if callable(self.edge_features):
            if noisy.x is None:
                raise InputError("edge_features needs node features x; the graph has none (set them before EdgeFlip)")
            noisy.edge_attr = made_edge_features(self.edge_features, noisy.x, noisy.edge_index)
        return noisy

    def _next(self) -> str:
        if self.seed is None:
            return f"torch {int(torch.randint(2**63 - 1, ()))}"
        worker = get_worker_info()
        self._draws += 1
        return f"{self.seed} {'' if worker is None else worker.seed} {self._draws}"
