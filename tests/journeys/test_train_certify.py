"""What a user does: train, certify, stop, continue, export, have it audited. What must be stopped is a process of its own."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.forked import Server
from support.shared_data import data_root

SLOW = ["certify", "--model", "own:make", "--data", "graphs", "--keep", "0.8", "--samples", "3000"]


def test_ctrl_c_ends_with_the_command_to_continue(shell):
    shell.done(*SLOW, "--out", "whole")
    begun, journal = Path("stopped/run.json"), Path("stopped/evidence.sqlite-wal")

    def committed():  # a first piece of work
        return begun.exists() and journal.exists() and journal.stat().st_size > 20_000

    ended = Server(Path())(*SLOW, "--out", "stopped", killed_after=committed, by=signal.SIGINT, PAUSE=3e-4)
    assert (ended.code, ended.out) == (130, ""), ended.err
    sentence = "flipproof: stopped; what is finished is kept. continue with: flipproof certify --model own:make"
    assert ended.err.splitlines()[-1].startswith(sentence)
    assert "Traceback" not in ended.err
    shell.done(*SLOW, "--out", "stopped")
    assert shell.rows("stopped") == shell.rows("whole")


def test_help_answers_at_once(tmp_path):
    """Within half a second of processor time, whatever else the machine does."""
    script = (
        "import sys, time\nsys.argv = ['flipproof', '--help']\nfrom flipproof.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    assert not {'torch', 'numpy', 'scipy', 'networkx', 'numba', 'sqlite3'} & sys.modules.keys()\n"
        "    assert time.process_time() < 0.5, time.process_time()\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for command in ("train", "certify", "export", "verify", "radius", "reproduce"):
        assert command in shown.stdout


@pytest.mark.parametrize("command", ["train", "certify", "export", "verify"])
def test_every_command_has_help_with_an_example(command, shell):
    assert f"flipproof {command}" in shell.done(command, "--help").out.split("Example:")[1]


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


FEW = ["--samples", 64, "--graphs", 4, "--method", "votes", "--alpha", 0.05, "--out", "run"]


@pytest.mark.parametrize(
    ("package", "project", "way"),
    [("chemistry", PYG_PROJECT, "compiled twin"), ("kernels", GRAKEL_PROJECT, "callable")],
)
def test_a_project_of_ones_own_without_a_change(package, project, way, shell, monkeypatch):
    monkeypatch.setenv("FLIPPROOF_DATA", str(data_root()))
    if "grakel" in project:
        pytest.importorskip("grakel")
    file = Path(package, "molecules.py")
    file.parent.mkdir()
    file.with_name("__init__.py").touch()
    file.write_text(project)
    data = ["--data", "MUTAG", "--root", data_root(), "--add", 0.005, "--remove", 0.2]
    certify = ["certify", "--model", f"{package}.molecules:trained", *data, *FEW]
    summary = json.loads(shell.done(*certify, "--json").out)
    assert (summary["model"], summary["graphs"]) == (f"{package}.molecules:trained", 4)
    settings = json.loads(Path("run", "run.json").read_text())["settings"]
    assert settings["features"] == "own"
    assert settings["paths"]
    assert all(kind.startswith(way) for kind in settings["paths"])
    shell.done("verify", "run")
    assert file.read_text() == project


TRAINING = ["train", "--data", "topologies:48", "--model", "gcn", "--keep", "0.9", "--epochs", "120", "-q", "--out"]


def test_a_training_killed_half_way_ends_with_the_same_bytes(shell):
    shell.done(*TRAINING, "whole")
    assert Server(Path())(*TRAINING, "killed", killed_after=Path("killed.part").exists).killed
    assert not Path("killed").exists(), "it was killed too late"
    shell.done(*TRAINING, "killed")
    for file in ("weights.safetensors", "config.json"):
        assert Path("killed", file).read_bytes() == Path("whole", file).read_bytes()
    assert not Path("killed.part").exists()
