"""A training under way, in one file: weights, optimiser, dropout, history. Safetensors with JSON in its header, no pickle.

Written whole and renamed into place, so that a process killed at any moment leaves the last one as it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from flipproof.errors import InputError
from flipproof.files import write_bytes

__all__ = ["Checkpoint", "digest", "finished_epochs", "read_checkpoint", "write_checkpoint"]

_FORMAT = "flipproof checkpoint 2"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after an epoch.

    Attributes:
        asked: What was asked of the training, plain JSON: only the same training continues from here.
        state: Numbers and lists that change from epoch to epoch, plain JSON.
        tensors: Tensors that do, by name.
    """

    asked: dict[str, Any]
    state: dict[str, Any]
    tensors: dict[str, Tensor]


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write the file, whole or not at all."""
    header = {"format": _FORMAT, "asked": checkpoint.asked, "state": checkpoint.state}
    # tensors that share memory (tied weights) are stored one by one
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in checkpoint.tensors.items()}
    write_bytes(path, save(tensors, {"flipproof": json.dumps(header, allow_nan=False)}), durable=False)


def read_checkpoint(path: Path, asked: Mapping[str, Any]) -> Checkpoint | None:
    """The state of the training that was asked for; ``None`` if there is no file. That of another training is refused."""
    if not path.exists():
        return None
    wanted = json.loads(json.dumps(asked))
    header, tensors = _read(path)
    found = header["asked"]
    for key in [*wanted, *(found.keys() - wanted.keys())]:
        if found.get(key) != wanted.get(key):
            raise InputError(
                f"{path} holds a training with {key} = {found.get(key)!r}; asked for {key} = {wanted.get(key)!r} (ask for the "
                "same to continue it, or remove the file to start over)"
            )
    return Checkpoint(found, header["state"], tensors)


def finished_epochs(path: Path) -> int:
    """Epochs that a checkpoint holds; 0 if there is none."""
    return len(_read(path, tensors=False)[0]["state"]["history"]) if path.exists() else 0


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Hash of named tensors: the same only for the same names, shapes, types and values."""
    found = hashlib.sha256()
    for name, value in tensors.items():
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _read(path: Path, *, tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads(file.metadata()["flipproof"])
            if header["format"] != _FORMAT:
                raise ValueError(f"it has format {header['format']!r}, this flipproof reads {_FORMAT!r}")
            return header, {name: file.get_tensor(name) for name in file.keys()} if tensors else {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path} is not a whole checkpoint: {reason} (remove it to start over)") from error
