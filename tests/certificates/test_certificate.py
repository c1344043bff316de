"""Certificates as results: printed, converted, compared."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from flipproof import Certificate, EdgeNoise, certify_counts
from flipproof.certificates.certificate import GRID_LIMIT, NodeRadii, cut_grid
from support.certificates import ABSTAINED, certificate

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
    names = {field.name for field in dataclasses.fields(Certificate)} - {"noise", "node_radii"}
    beside = {f"{field.name}_nodes_radius" for field in dataclasses.fields(NodeRadii)} - {"nodes_nodes_radius"}
    assert names | beside | {"node_changes"} <= set(plain), "nothing is left out"
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
