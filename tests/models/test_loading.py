"""Models and node features as a user names them: known by their weights and code."""

from __future__ import annotations

from pathlib import Path

import pytest

import flipproof as fp
from flipproof.models.loading import features_identity, load_features, load_model


def test_a_users_model_is_known_by_its_weights_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import torch\n\n\ndef one():\n    torch.manual_seed(0)\n    return torch.nn.Linear(2, 2)\n\n\n"
        "def two():\n    torch.manual_seed(1)\n    return torch.nn.Linear(2, 2)\n"
    )
    (tmp_path / "mine_first.py").write_text(code)
    (tmp_path / "mine_second.py").write_text(code + "\n# changed\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = ("mine_first:one", "mine_first:two", "mine_second:one")
    identities = [load_model(name).identity for name in names]
    assert len(set(identities)) == 3
    assert load_model(names[0]).identity == identities[0]
    assert not load_model(names[0]).model.training


def test_features_by_name_and_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_hooks.py").write_text("def ones(graph):\n    return [[1.0]] * graph.num_nodes\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_features(None) is None
    assert features_identity(None) == features_identity("own") == "own"
    assert features_identity("own+one-hot-degree:5") == "own+one-hot-degree:5"
    assert features_identity("one-hot-degree:5") == "one-hot-degree:5"
    assert load_features("mine_hooks:ones").of(fp.Graph(2, [])).tolist() == [[1.0], [1.0]]
    assert features_identity("mine_hooks:ones").startswith("mine_hooks:ones sha256:")
