"""Where the real data sets lie: ``$FLIPPROOF_DATA``, else ``../shared/data`` beside the project."""

import os
from pathlib import Path

import pytest


def data_root() -> Path:
    """The folder of the TU data sets; skips the test, and says so, where there is none."""
    folder = os.environ.get("FLIPPROOF_DATA")
    root = Path(folder) if folder else Path(__file__).parents[3] / "shared" / "data"
    if not root.is_dir():
        pytest.skip(f"no TU data sets at {root} (set FLIPPROOF_DATA to the folder that holds them)")
    return root
