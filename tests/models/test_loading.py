"""Models and node features as a user names them: known by their weights and code."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import flipproof as fp
from flipproof.models.loading import hook_identity, load_features, load_model, model_identity


def test_a_users_model_is_known_by_its_weights_and_code(tmp_path, monkeypatch):
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


class _Always:
    """A black box with a setting, which notes down that it was called."""

    def __init__(self, answer):
        self.answer, self.calls = answer, list[int]()

    def __call__(self, graphs):
        self.calls.append(len(graphs))
        return [self.answer] * len(graphs)


class _Scaled(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor


def _captured(answer):
    return lambda graphs: [int(np.max(answer))] * len(graphs)


def _in_a_notebook(code):
    names: dict[str, Any] = {"__name__": "notebook"}
    exec(code, names)
    return names["model"]


_CLASS = "class Model:\n    def __call__(self, graphs):\n        return [{}] * len(graphs)\nmodel = Model()"
_GLOBAL = "answer = {}\ndef helper(): return answer\ndef model(graphs): return [helper()] * len(graphs)"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda graphs: [0] * len(graphs), lambda graphs: [1] * len(graphs)),
        (_captured(0), _captured(1)),
        (_captured(np.array([0])), _captured(np.array([1]))),
        (_captured(lambda: 0), _captured(lambda: 1)),
        (_Always(0), _Always(1)),
        (_Always(0).__call__, _Always(1).__call__),
        (partial(max, 0), partial(max, 1)),
        (_Scaled(1.0), _Scaled(2.0)),
        (_in_a_notebook(_CLASS.format(0)), _in_a_notebook(_CLASS.format(1))),
        (_in_a_notebook(_GLOBAL.format(0)), _in_a_notebook(_GLOBAL.format(1))),
    ],
    ids=["constant", "captured", "array", "function", "object", "method", "partial", "module", "class", "global"],
)
def test_black_boxes_that_differ_are_told_apart(one, other):
    assert model_identity(one) != model_identity(other)
    assert model_identity(one) == model_identity(one)


def test_what_a_black_box_notes_down_makes_it_no_other_model():
    model = _Always(1)
    before = model_identity(model)
    model([fp.Graph(2, [])])
    assert model_identity(model) == before


def test_functions_that_call_themselves_and_networks_with_tied_weights_have_an_identity():
    assert model_identity(_in_a_notebook("def model(graphs): return model(graphs[1:])"))
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    network[1].weight = network[0].weight
    before = model_identity(network)
    with torch.no_grad():
        network[0].weight[0, 0] += 1
    assert model_identity(network) != before


def test_features_by_name_and_of_ones_own(tmp_path, monkeypatch):
    (tmp_path / "mine_hooks.py").write_text("def ones(graph):\n    return [[1.0]] * graph.num_nodes\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert load_features(None) is None
    assert hook_identity(None) == hook_identity(load_features("own")) == "own"
    for name in ("own+one-hot-degree:5", "one-hot-degree:5"):
        assert hook_identity(load_features(name)) == name
    own = load_features("mine_hooks:ones")
    assert own.of(fp.Graph(2, [])).tolist() == [[1.0], [1.0]]
    assert hook_identity(own, "mine_hooks:ones").startswith("mine_hooks:ones sha256:")
