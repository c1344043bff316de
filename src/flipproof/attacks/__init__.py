"""Attacks: the other side of the bound. A success with ``k`` flips says that no certificate can reach ``k``."""

from flipproof.attacks.search import AttackResult, Options, robust_accuracy
from flipproof.attacks.searches import NAMES, by_name, exhaustive, gradient, greedy, known, random, strongest

__all__ = [
    "NAMES",
    "AttackResult",
    "Options",
    "by_name",
    "exhaustive",
    "gradient",
    "greedy",
    "known",
    "random",
    "robust_accuracy",
    "strongest",
]
