"""Folds as published files: which graph is tested in which fold, one character per graph, bound to the graphs by their hash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from flipproof.datasets.dataset import Dataset
from flipproof.datasets.sources import fingerprint
from flipproof.datasets.splits import Split, folds
from flipproof.errors import InputError
from flipproof.files import write_json

__all__ = ["FOLDS", "read_folds", "write_folds"]

FOLDS = 10
_DIGITS = "0123456789"


def write_folds(path: Path, data: Dataset, *, seed: int = 0) -> None:
    """Write ten stratified folds of a data set.

    In fold ``k`` the graphs with digit ``k`` are tested, those with digit ``k + 1`` (after 9 comes 0) choose settings, and the
    others are trained on.
    """
    if len(data) < FOLDS:
        raise InputError(f"ten folds need at least ten graphs; got {len(data)} (use more graphs)")
    digits = np.empty(len(data), dtype=np.int64)
    for number, part in enumerate(folds(data, number=FOLDS, seed=seed)):
        digits[part.test_indices] = number
    content = {
        "data": data.name,
        "graphs": len(data),
        "data_sha256": fingerprint(data),
        "seed": seed,
        "folds": "".join(_DIGITS[digit] for digit in digits),
    }
    write_json(path, content)


def read_folds(path: Path, data: Dataset) -> list[Split]:
    """The ten splits that a file describes; refuses a file of other graphs."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        digits = np.array([_DIGITS.index(digit) for digit in content["folds"]])
        seed = int(content["seed"])
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror} (give the folder of the fold files)") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a file of folds: {error} (compare benchmarks/splits)") from error
    if len(digits) != len(data) or content.get("data_sha256") != fingerprint(data):
        raise InputError(
            f"{path} belongs to other graphs than these {len(data)} of {data.name} (use the same files and the same data seed)"
        )
    found = []
    for number in range(FOLDS):
        held = (number + 1) % FOLDS
        parts = [np.flatnonzero(mask) for mask in (~np.isin(digits, (number, held)), digits == held, digits == number)]
        if not all(len(part) for part in parts):
            raise InputError(f"{path}: fold {number} has an empty part (write the file again)")
        found.append(Split(data, parts[0], parts[1], parts[2], seed))
    return found
