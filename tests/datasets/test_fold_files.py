"""Published folds: they partition the graphs, every class in proportion, and belong to their graphs alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from flipproof.datasets import topologies
from flipproof.datasets.splits import folds, read_folds, write_folds
from flipproof.errors import InputError

SPLITS = Path(__file__).parents[2] / "benchmarks" / "splits"


def test_what_is_written_is_read_and_is_what_folds_makes(tmp_path: Path) -> None:
    data = topologies(80)
    write_folds(tmp_path / "f.json", data)
    found = read_folds(tmp_path / "f.json", data)
    for ours, theirs in zip(found, folds(data, number=10, validation=True), strict=True):
        for part in ("train_indices", "validation_indices", "test_indices"):
            np.testing.assert_array_equal(getattr(ours, part), getattr(theirs, part))
    tested = np.concatenate([part.test_indices for part in found])
    assert sorted(tested.tolist()) == list(range(80))
    assert all(np.bincount(part.test.labels, minlength=8).max() <= 2 for part in found)


def test_the_published_folds_of_the_paper_s_graphs_are_theirs(tmp_path: Path) -> None:
    data = topologies(480, seed=0)
    read_folds(SPLITS / "topologies.json", data)
    write_folds(tmp_path / "f.json", data)
    assert (tmp_path / "f.json").read_bytes() == (SPLITS / "topologies.json").read_bytes()
    with pytest.raises(InputError, match="belongs to other graphs"):
        read_folds(SPLITS / "topologies.json", topologies(480, seed=1))
    for path in SPLITS.glob("*.json"):
        content = json.loads(path.read_text())
        assert len(content["folds"]) == content["graphs"]
        assert set(content["folds"]) == set("0123456789")


@pytest.mark.parametrize("text", ["", "{}", '{"folds": "01x", "seed": 0}', '{"folds": 3, "seed": 0}'])
def test_a_file_that_is_none_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(text)
    with pytest.raises(InputError, match="is not a file of folds"):
        read_folds(tmp_path / "f.json", topologies(16))
    with pytest.raises(InputError, match="cannot be read"):
        read_folds(tmp_path / "gone.json", topologies(16))
    with pytest.raises(InputError, match="ten folds need at least ten graphs"):
        write_folds(tmp_path / "g.json", topologies(8))
