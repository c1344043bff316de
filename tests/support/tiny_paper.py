"""The paper's experiment at a tiny size. A process of :mod:`support.forked` that imports it has it as its quick version."""

import multiprocessing
from typing import Any

from flipproof.studies.paper_experiment import Settings

COUNTS: dict[str, Any] = {"graphs": 32, "train_graphs": 16, "networks": 1, "sample_counts": (100, 200, 300)}
EPOCHS: dict[str, Any] = {"clean_epochs": 2, "gcn_epochs": 2, "gin_epochs": (1, 1), "radius_epochs": 1}
TINY = Settings(**COUNTS, **EPOCHS, keeps=(0.7, 0.9), gin_samples=200)
if multiprocessing.parent_process() is not None:
    Settings.quick = lambda seed: TINY
