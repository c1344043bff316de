"""What a user does with models of another kind: a PyG network of their own, kernels, a training that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import call
from support.shared_data import data_root

# as somebody wrote it who had never heard of flipproof: it wants its own node features, and comes in training mode
PYG_PROJECT = '''
"""Molecules with PyG."""

import torch
from torch_geometric.nn import GraphConv, global_max_pool, global_mean_pool


class Molecules(torch.nn.Module):
    def __init__(self, atoms=7, hidden=16):
        super().__init__()
        self.first = GraphConv(atoms, hidden)
        self.second = GraphConv(hidden, hidden)
        self.norm = torch.nn.BatchNorm1d(hidden)
        self.classify = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(2 * hidden, 2))

    def forward(self, x, edge_index, edge_weight=None, batch=None):
        x = self.norm(self.first(x, edge_index, edge_weight).relu())
        x = self.second(x, edge_index, edge_weight).relu()
        return self.classify(torch.cat([global_mean_pool(x, batch), global_max_pool(x, batch)], dim=1))


def trained():
    torch.manual_seed(0)
    model = Molecules()
    for _ in range(3):  # a ring of six atoms again and again; what it learns does not matter here
        edges = torch.tensor([[v, (v + 1) % 6] for v in range(6)] + [[(v + 1) % 6, v] for v in range(6)]).T
        model(torch.eye(7)[torch.randint(7, (6,))], edges, batch=torch.zeros(6, dtype=torch.long))
    return model
'''

GRAKEL_PROJECT = (Path(__file__).parents[2] / "examples" / "wl_kernel.py").read_text()


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """The command line in a folder of the user's, without starting a process for every command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FLIPPROOF_DATA", str(data_root()))

    def run(*arguments: object) -> dict[str, Any]:
        done = call(monkeypatch, capsys, *arguments, "--json")
        assert done.code == 0, done.err
        found: dict[str, Any] = json.loads(done.out)
        return found

    return run


FEW = ["--samples", 64, "--graphs", 4, "--method", "votes", "--alpha", 0.05, "--out", "run"]


@pytest.mark.parametrize(
    ("package", "project", "way"),
    [("chemistry", PYG_PROJECT, "compiled twin"), ("kernels", GRAKEL_PROJECT, "callable")],
)
def test_a_project_of_ones_own_without_a_change(
    package: str, project: str, way: str, shell: Callable[..., dict[str, Any]]
) -> None:
    if "grakel" in project:
        pytest.importorskip("grakel")
    file = Path(package, "molecules.py")
    file.parent.mkdir()
    file.with_name("__init__.py").touch()
    file.write_text(project)
    data = ["--data", "MUTAG", "--root", data_root(), "--add", 0.005, "--remove", 0.2]
    summary = shell("certify", "--model", f"{package}.molecules:trained", *data, *FEW)
    assert (summary["model"], summary["graphs"]) == (f"{package}.molecules:trained", 4)
    settings = json.loads(Path("run", "run.json").read_text())["settings"]
    assert settings["features"] == "own"
    assert settings["paths"]
    assert all(kind.startswith(way) for kind in settings["paths"])
    assert shell("verify", "run")["ok"]
    assert file.read_text() == project


TRAINING = ["train", "--data", "topologies:48", "--model", "gcn", "--keep", "0.9", "--epochs", "120", "-q", "--out"]


def test_a_training_killed_half_way_ends_with_the_same_bytes(
    tmp_path: Path, shell: Callable[..., dict[str, Any]]
) -> None:
    shell(*TRAINING, "whole")
    command = [sys.executable, "-m", "flipproof", *TRAINING, "killed"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None and not (tmp_path / "killed.part").exists():
            time.sleep(0.002)
        time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "killed").exists(), "it was killed too late"
    shell(*TRAINING, "killed")
    for file in ("weights.safetensors", "config.json"):
        assert (tmp_path / "killed" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".tmp") == ["killed", "whole"]
