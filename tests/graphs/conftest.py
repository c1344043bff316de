"""Graphs that several tests look at."""

from __future__ import annotations

import numpy as np
import pytest

from flipproof import Graph


@pytest.fixture
def full() -> Graph:
    """A graph with everything a graph can have."""
    features = np.arange(10, dtype=np.float32).reshape(5, 2)
    return Graph(5, [(0, 1), (3, 1), (2, 4)], features, 2, frozen=[(4, 3), (0, 1)], name="five")
