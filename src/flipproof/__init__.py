"""flipproof: graph classifiers that provably withstand edge flips, by smoothing, by voting, by design, or by
seeing no edge.

Names are loaded when they are first used, so that importing the package is quick and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from flipproof.certificates.certificate import Certificate as Certificate
    from flipproof.certificates.group_votes import GroupVotes as GroupVotes
    from flipproof.certificates.group_votes import certify_group_votes as certify_group_votes
    from flipproof.certificates.metrics import average_certified_radius as average_certified_radius
    from flipproof.certificates.metrics import certified_accuracy as certified_accuracy
    from flipproof.certificates.metrics import certified_interval as certified_interval
    from flipproof.certificates.metrics import paired_tests as paired_tests
    from flipproof.certificates.node_votes import NodeVotes as NodeVotes
    from flipproof.certificates.sampled_votes import Votes as Votes
    from flipproof.certificates.sampled_votes import certify_counts as certify_counts
    from flipproof.certificates.sampled_votes import certify_votes as certify_votes
    from flipproof.certificates.vote_share import certified_grid as certified_grid
    from flipproof.certificates.vote_share import radius as radius
    from flipproof.certificates.vote_share import worst_case as worst_case
    from flipproof.defences.baselines import EdgeBlindClassifier as EdgeBlindClassifier
    from flipproof.defences.local import LocalClassifier as LocalClassifier
    from flipproof.defences.smoothing import SmoothedClassifier as SmoothedClassifier
    from flipproof.defences.voting import VotingClassifier as VotingClassifier
    from flipproof.errors import InputError as InputError
    from flipproof.graphs import Graph as Graph
    from flipproof.noise import BitNoise as BitNoise
    from flipproof.noise import EdgeGroups as EdgeGroups
    from flipproof.noise import EdgeNoise as EdgeNoise
    from flipproof.noise import LabelNoise as LabelNoise
    from flipproof.runs.saved_run import SavedRun as SavedRun
    from flipproof.runs.saved_run import certify_run as certify_run
    from flipproof.runs.saved_run import load_run as load_run
    from flipproof.runs.table import to_dataframe as to_dataframe
    from flipproof.studies.estimator import RobustGraphClassifier as RobustGraphClassifier
    from flipproof.studies.estimator import explain as explain
    from flipproof.studies.estimator import load as load
    from flipproof.training import TrainingResult as TrainingResult
    from flipproof.training import train as train
    from flipproof.training import train_nodes as train_nodes
    from flipproof.training import train_voting as train_voting
    from flipproof.training.edge_flip import EdgeFlip as EdgeFlip

_HOMES = {
    "certificates.certificate": ["Certificate"],
    "certificates.group_votes": ["GroupVotes", "certify_group_votes"],
    "certificates.metrics": ["average_certified_radius", "certified_accuracy", "certified_interval", "paired_tests"],
    "certificates.node_votes": ["NodeVotes"],
    "certificates.sampled_votes": ["Votes", "certify_counts", "certify_votes"],
    "certificates.vote_share": ["certified_grid", "radius", "worst_case"],
    "defences.baselines": ["EdgeBlindClassifier"],
    "defences.local": ["LocalClassifier"],
    "defences.smoothing": ["SmoothedClassifier"],
    "defences.voting": ["VotingClassifier"],
    "errors": ["InputError"],
    "graphs": ["Graph"],
    "noise": ["BitNoise", "EdgeGroups", "EdgeNoise", "LabelNoise"],
    "runs.saved_run": ["SavedRun", "certify_run", "load_run"],
    "runs.table": ["to_dataframe"],
    "studies.estimator": ["RobustGraphClassifier", "explain", "load"],
    "training": ["TrainingResult", "train", "train_nodes", "train_voting"],
    "training.edge_flip": ["EdgeFlip"],
}
_MODULES = {name: name for name in ("attacks", "datasets", "defences", "engines", "models")}
_MODULES["plot"] = "report.plots"
_MODULES["features"] = "classifiers.features"
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_MODULE_OF, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(f"flipproof.{_MODULES[name]}")
    elif name in _MODULE_OF:
        value = getattr(import_module(f"flipproof.{_MODULE_OF[name]}"), name)
    else:
        raise AttributeError(f"module 'flipproof' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
