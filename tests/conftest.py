"""Fixtures that several folders of tests share."""

import random

import hypothesis
import numpy as np
import pytest
import torch

from flipproof import Graph
from support.command_line import Shell, call

collect_ignore = ["support/thirds.py"]  # importing it, to look for examples, would register it for all tests

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.load_profile("fixed")


def pytest_runtest_setup() -> None:
    """Whatever draws from a global generator draws the same in every run, alone and in any order."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def one_core():
    """Work that may take all cores takes one: tests run side by side, and those of several workers say how many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
        yield


@pytest.fixture(scope="module", autouse=True)
def small_forests(request):
    """The line to beat is learned by nearly every command; a forest of few trees is as good, where it is not the subject."""
    with pytest.MonkeyPatch.context() as patch:
        if not {"models", "test_docs.py", "guarantee"} & set(request.path.parts):
            patch.setattr("flipproof.models.node_statistics._TREES", 10)
        yield


@pytest.fixture
def full():
    """A graph with everything a graph can have."""
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    return Graph(5, [(0, 1), (3, 1), (2, 4)], features, 2, frozen=[(4, 3), (0, 1)], name="five")


@pytest.fixture
def shell(tmp_path, monkeypatch, capsys):
    """The command line in a user's folder, which holds ``own.py``, a black box, and ``graphs``."""
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line, in this process."""
    return lambda *words: call(monkeypatch, capsys, *words)


@pytest.fixture
def undrawn(monkeypatch):
    """Pages and tables without figures, which take seconds and have tests of their own."""
    monkeypatch.setattr("flipproof.report.drawing.write_figures", lambda *drawn: [])
