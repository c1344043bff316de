"""Certificates as results: printed, converted, compared; and the accuracy of many of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from flipproof import (
    Certificate,
    EdgeNoise,
    InputError,
    average_certified_radius,
    certified_accuracy,
    certify_counts,
)
from flipproof.certificates.certificate import GRID_LIMIT, cut_grid


def certificate(label: int | None = 0, radius: int = 0, **changes: Any) -> Certificate:
    fields: dict[str, Any] = {
        "label": label,
        "radius": radius,
        "method": "votes",
        "alpha": 0.001,
        "samples": 1000,
        "counts": (990, 10),
        "p_lower": 0.97,
        "p_upper": 0.03,
        "noise": EdgeNoise(keep=0.8),
        "num_slots": 6,
        "grid": np.ones((radius + 1, radius + 1), dtype=bool),
    }
    return Certificate(**(fields | changes))


ABSTAINED = certificate(None, -1, grid=np.zeros((0, 0), dtype=bool))


# ---- accuracy ----------------------------------------------------------------------------------------------


def test_certified_accuracy_counts_radii_of_at_least_r() -> None:
    certificates = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED]
    labels = [0, 1, 0, 0]  # right with 2, right with 0, wrong with 3, abstained
    accuracy = certified_accuracy(certificates, labels, radii=range(5))
    assert accuracy.tolist() == [0.5, 0.25, 0.25, 0.0, 0.0]
    assert accuracy.dtype == np.float64
    assert certified_accuracy(certificates, labels).shape == (17,)
    assert certified_accuracy(certificates, labels, [2, 0]).tolist() == [0.25, 0.5]
    assert certified_accuracy(certificates, np.array(labels), []).shape == (0,)


def test_abstaining_is_never_right_whatever_the_label_is_called() -> None:
    assert certified_accuracy([ABSTAINED], [-1], [-1, 0]).tolist() == [0.0, 0.0]
    assert average_certified_radius([ABSTAINED], [0]) == 0


def test_average_certified_radius_counts_wrong_and_abstained_as_0() -> None:
    certificates = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED, certificate(1, 4)]
    assert average_certified_radius(certificates, [0, 1, 0, 0, 1]) == 6 / 5
    assert type(average_certified_radius(certificates, [0, 1, 0, 0, 1])) is float


@pytest.mark.parametrize("labels", [[0], [0, 1, 1], 0, [[0, 1]]])
def test_labels_must_match(labels: Any) -> None:
    for measure in (certified_accuracy, average_certified_radius):
        with pytest.raises(InputError, match=r"one a certificate, \[2\].*got shape"):
            measure([certificate(), certificate()], labels)


def test_no_certificates_have_no_accuracy() -> None:
    with pytest.raises(InputError, match="at least one"):
        certified_accuracy([], [])


# ---- the object --------------------------------------------------------------------------------------------


def test_frozen() -> None:
    found = certify_counts([990, 10], EdgeNoise(keep=0.8))
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.radius = 99  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        found.grid[0, 0] = False
    with pytest.raises(TypeError):
        hash(found)


def test_equality() -> None:
    one = certify_counts([990, 10], EdgeNoise(keep=0.8))
    assert one == certify_counts([990, 10], EdgeNoise(keep=0.8))
    assert one != certify_counts([991, 9], EdgeNoise(keep=0.8))
    assert one != certify_counts([990, 10], EdgeNoise(keep=0.8), alpha=0.01)
    assert one != "certificate"
    assert certificate(0, 1) != certificate(0, 1, grid=np.array([[True, True], [True, False]]))


@pytest.mark.parametrize(
    "found",
    [
        certify_counts([990, 10], EdgeNoise(keep=0.8)),
        certify_counts(np.array([990, 10, 0], dtype=np.uint16), EdgeNoise(add=0.1, remove=0.4)),
        certify_counts([500, 500], EdgeNoise(keep=0.8), method="paper"),
        certify_counts([990, 10], EdgeNoise(keep=0.8), alpha=np.float32(0.01)),  # type: ignore[arg-type]
        certificate(noise=None, num_slots=None),
    ],
)
def test_to_dict_is_ready_for_json(found: Certificate) -> None:
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    names = {field.name for field in dataclasses.fields(Certificate)} - {"noise"}
    assert names <= set(plain), "nothing is left out"
    assert plain["radius"] == found.radius
    assert plain["p_add"] == (None if found.noise is None else found.noise.p_add)


def test_str() -> None:
    assert str(certificate(3, 2)) == (
        "class 3, certified against any 2 edge flips "
        "(votes, alpha 0.001, 1,000 samples, share of votes at least 0.9700)"
    )
    assert "any 1 edge flip (" in str(certificate(3, 1))
    assert str(ABSTAINED) == "abstains (votes, alpha 0.001, 1,000 samples, votes [990, 10])"
    assert "EdgeNoise(keep=0.8)" in repr(certificate())


def test_one_sided_radii() -> None:
    grid = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 0, 0]], dtype=bool)
    found = certificate(0, 1, grid=grid)
    assert (found.adds_radius, found.removes_radius) == (3, 2)
    assert (ABSTAINED.adds_radius, ABSTAINED.removes_radius) == (-1, -1)
    assert ABSTAINED.abstains
    assert not found.abstains


# ---- the grid ----------------------------------------------------------------------------------------------


def test_grid_is_cut_at_the_first_row_and_column_without_a_cell() -> None:
    grid = np.zeros((6, 7), dtype=bool)
    grid[:3, 0] = grid[0, :5] = True
    cut = cut_grid(grid)
    assert cut.shape == (3, 5)
    assert np.array_equal(cut, grid[:3, :5])
    grid[0, 0] = False
    assert np.array_equal(cut, [[1, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]), "a copy"


def test_grid_is_never_larger_than_its_limit() -> None:
    assert cut_grid(np.ones((100, 70), dtype=bool)).shape == (GRID_LIMIT, GRID_LIMIT) == (64, 64)
    assert cut_grid(np.ones((3, 100), dtype=bool)).shape == (3, 64)
    assert cut_grid(np.zeros((3, 3), dtype=bool)).shape == (0, 0)
    assert cut_grid(np.zeros((0, 0), dtype=bool)).shape == (0, 0)
