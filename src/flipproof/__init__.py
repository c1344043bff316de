"""flipproof: graph classifiers that provably withstand edge flips.

Names are loaded when they are first used, so that importing the package is quick and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from flipproof.certificates.bounds import AlphaSplit as AlphaSplit
    from flipproof.certificates.certificate import Certificate as Certificate
    from flipproof.certificates.certificate import average_certified_radius as average_certified_radius
    from flipproof.certificates.certificate import certified_accuracy as certified_accuracy
    from flipproof.certificates.methods import certify_counts as certify_counts
    from flipproof.certificates.methods import certify_votes as certify_votes
    from flipproof.certificates.sequential import Sequential as Sequential
    from flipproof.certificates.vote_share import certified_grid as certified_grid
    from flipproof.certificates.vote_share import radius as radius
    from flipproof.certificates.vote_share import worst_case as worst_case
    from flipproof.certificates.group_majority import certify_group_votes as certify_group_votes
    from flipproof.errors import InputError as InputError
    from flipproof.graphs import Graph as Graph
    from flipproof.certificates.group_votes import GroupVotes as GroupVotes
    from flipproof.noise import EdgeGroups as EdgeGroups
    from flipproof.noise import EdgeNoise as EdgeNoise
    from flipproof.defences.smoothing import SmoothedClassifier as SmoothedClassifier
    from flipproof.training import TrainingResult as TrainingResult
    from flipproof.training import train as train
    from flipproof.certificates.sampled_votes import Votes as Votes
    from flipproof.defences.voting import VotingClassifier as VotingClassifier

_HOMES = {
    "AlphaSplit": "bounds",
    "Certificate": "certificates.certificate",
    "average_certified_radius": "certificates.certificate",
    "certified_accuracy": "certificates.certificate",
    "certify_counts": "certificates.certify",
    "certify_votes": "certificates.certify",
    "Sequential": "certificates.sequential",
    "certified_grid": "certificates.votes",
    "radius": "certificates.votes",
    "worst_case": "certificates.votes",
    "certify_group_votes": "certificates.voting",
    "InputError": "errors",
    "Graph": "graphs",
    "EdgeGroups": "noise",
    "GroupVotes": "grouping",
    "EdgeNoise": "noise",
    "SmoothedClassifier": "smoothing",
    "TrainingResult": "training",
    "train": "training",
    "Votes": "votes",
    "VotingClassifier": "voting",
}
_MODULES = ("attacks", "datasets", "engines", "models", "features")

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"flipproof.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"flipproof.{name}")
    else:
        raise AttributeError(f"module 'flipproof' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
