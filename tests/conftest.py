"""Fixtures that several folders of tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flipproof import Graph
from support.command_line import Command, Shell, call

collect_ignore = ["support/thirds.py"]  # importing it, to look for examples, would register it for all tests


@pytest.fixture
def full() -> Graph:
    """A graph with everything a graph can have."""
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    return Graph(5, [(0, 1), (3, 1), (2, 4)], features, 2, frozen=[(4, 3), (0, 1)], name="five")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """The command line in a user's folder, which holds ``own.py``, a black box, and ``graphs``."""
    return Shell(tmp_path, monkeypatch, capsys)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line, in this process."""
    return lambda *words: call(monkeypatch, capsys, *words)
