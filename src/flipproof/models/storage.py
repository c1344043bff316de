"""Models by name, and in folders: weights as safetensors beside a config that a person can read.

- ``FOLDER/config.json``: what the model is, and whatever the caller wants remembered (noise, data, seeds)
- ``FOLDER/weights.safetensors``: the weights; no pickle, so that loading runs no code
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from flipproof.classifiers.features import NodeFeatures
from flipproof.errors import InputError
from flipproof.files import write_folder
from flipproof.models.blinded import EdgeBlind
from flipproof.models.gcn import GCN
from flipproof.models.gin import GIN
from flipproof.models.local_network import Local
from flipproof.models.network import NamedNetwork
from flipproof.models.node_statistics import NodeStatistics
from flipproof.noise import EdgeNoise

__all__ = ["NAMES", "SavedModel", "build", "load", "load_metadata", "packed_weights", "save"]

_FORMAT = "flipproof model"
_VERSION = 1
_CONFIG, _WEIGHTS = "config.json", "weights.safetensors"


def _pyg(name: str) -> Callable[..., NamedNetwork]:
    def network(**arguments: Any) -> NamedNetwork:
        from flipproof.models.pyg import PyGNetwork  # needs PyG, which takes a while

        return PyGNetwork(name, **arguments)

    return network


_CLASSES: dict[str, Callable[..., NamedNetwork]] = {
    **{model.name: model for model in (GCN, GIN)},
    **{name: _pyg(name) for name in ("graphsage", "sage", "gat")},
    Local.name: Local,
}

NAMES = (*_CLASSES, EdgeBlind.name)
"""Names that :func:`build` knows."""


@dataclass(frozen=True)
class SavedModel:
    """The description that a model folder holds.

    Attributes:
        config: The network; see :func:`build`.
        metadata: The metadata that was passed to :func:`save`.
        noise: The noise that the model was trained for, if it was saved with one.
        weights_hash: SHA-256 of the weights file: the model's identity.
    """

    config: dict[str, Any]
    metadata: dict[str, Any]
    noise: EdgeNoise | None
    weights_hash: str


def build(config: Mapping[str, Any], *, seed: int | None = None) -> NamedNetwork:
    """The network that a config describes, with fresh weights.

    Args:
        config: ``name`` (one of :data:`NAMES`) and the constructor's arguments; an edge-blind network has the config of
            the blinded one under ``network``.
        seed: Seed of the initial weights.

    >>> build({"name": "gcn", "in_features": 1, "num_classes": 8, "hidden": 16}).config["hidden"]
    16
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("name"), str):
        raise InputError(f"config must be a mapping with a name, one of {', '.join(NAMES)}; got {config!r}")
    name = config["name"]
    if name == EdgeBlind.name:
        return EdgeBlind(build(config.get("network", {}), seed=seed))  # type: ignore[arg-type]
    if name not in _CLASSES:
        raise InputError(f"unknown network {name!r} (flipproof has {', '.join(NAMES)})")
    arguments = {key: value for key, value in config.items() if key != "name"}
    try:
        return _CLASSES[name](**arguments, seed=seed)
    except TypeError as error:
        raise InputError(f"config of {name} does not fit: {error} (compare {name}'s documentation)") from error


def save(model: NamedNetwork | NodeStatistics, folder: str | os.PathLike[str], **metadata: Any) -> None:
    """Write a model to a folder, whole or not at all.

    Args:
        model: One of flipproof's own.
        folder: The folder to write. An existing model folder is replaced, anything else is refused.
        **metadata: Whatever should be remembered, as JSON: features, data and split seeds, training settings. An
            :class:`flipproof.EdgeNoise` is stored by its exact thresholds, a features hook by its spec.
    """
    if not isinstance(model, (NamedNetwork, NodeStatistics)):
        raise InputError(
            f"only flipproof's own networks can be saved; got {type(model).__name__} (save another module's state_dict "
            "with safetensors yourself)"
        )
    folder = Path(folder)
    if folder.exists() and not _is_ours(folder):
        raise InputError(f"{folder} exists and is not a model folder (choose another name, or remove it)")
    weights = packed_weights(model)
    description = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": model.config,
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "metadata": {key: _plain(value, key) for key, value in metadata.items()},
    }
    text = json.dumps(description, indent=2, sort_keys=False, allow_nan=False) + "\n"
    write_folder(folder, {_CONFIG: text.encode(), _WEIGHTS: weights})


def packed_weights(model: NamedNetwork | NodeStatistics) -> bytes:
    """The weights as the file of a model folder holds them."""
    return save_tensors({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()})


def load(folder: str | os.PathLike[str]) -> Any:
    """What :func:`save` wrote: a network in evaluation mode, or a fitted model. See :func:`load_metadata` for the rest."""
    folder = Path(folder)
    saved, weights = _read(folder)
    is_line = saved.config.get("name") == NodeStatistics.name
    model: Any = NodeStatistics.of_config(saved.config) if is_line else build(saved.config).eval()
    try:
        model.load_state_dict(load_tensors(weights))
    except (SafetensorError, RuntimeError, KeyError) as error:
        raise InputError(
            f"the weights in {folder} do not fit its config: {_first_line(error)} (train again)"
        ) from error
    return model


def load_metadata(folder: str | os.PathLike[str]) -> SavedModel:
    """The description that a model folder holds; also checks that the weights are whole."""
    return _read(Path(folder))[0]


def _read(folder: Path) -> tuple[SavedModel, bytes]:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a model folder: there is no such folder (give one that save or train wrote)")
    if not _is_ours(folder):
        raise InputError(
            f"{folder} is not a model folder: it has no {_CONFIG} of flipproof's (give one that save wrote)"
        )
    description = _description(folder)
    if description.get("version") != _VERSION:
        raise InputError(
            f"{folder} has version {description.get('version')} of the model format; this flipproof reads {_VERSION} "
            "(use the flipproof that wrote it)"
        )
    try:
        weights = (folder / _WEIGHTS).read_bytes()
    except OSError as error:
        raise InputError(f"{folder} has no readable {_WEIGHTS}: {error.strerror} (train or copy it again)") from error
    digest = hashlib.sha256(weights).hexdigest()
    if digest != description.get("weights_sha256"):
        raise InputError(f"{folder / _WEIGHTS} is cut off or altered: its hash is not the stored one (copy it again)")
    config, metadata = description.get("model"), description.get("metadata")
    if not isinstance(config, dict) or not isinstance(metadata, dict):
        raise InputError(f"{folder / _CONFIG} lacks the entries model and metadata (train or copy it again)")
    noise = metadata.get("noise")
    try:
        stored = None if noise is None else EdgeNoise.from_thresholds(noise["add_threshold"], noise["remove_threshold"])
    except (TypeError, KeyError, InputError) as error:
        raise InputError(f"{folder / _CONFIG} holds a noise that cannot be read: {noise!r} (train again)") from error
    return SavedModel(config, metadata, stored, digest), weights


def _description(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_ours(folder: Path) -> bool:
    return _description(folder).get("format") == _FORMAT


def _plain(value: Any, key: str) -> Any:
    if isinstance(value, EdgeNoise):
        return {
            "add_threshold": value.add_threshold,
            "remove_threshold": value.remove_threshold,
            "p_add": value.p_add,
            "p_remove": value.p_remove,
        }
    if isinstance(value, NodeFeatures):
        value = value.spec
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata {key} must be plain JSON (numbers, texts, lists); got {type(value).__name__}: {error} (convert it)"
        ) from error
    return value


def _first_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
