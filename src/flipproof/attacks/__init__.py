"""Attacks: the other side of the bound. A success with ``k`` flips says that no certificate can reach ``k``."""

from __future__ import annotations

from flipproof.attacks.attack_result import AttackResult, robust_accuracy
from flipproof.attacks.beam import beam
from flipproof.attacks.constraints import Constraints
from flipproof.attacks.genetic import genetic
from flipproof.attacks.gradient import gradient
from flipproof.attacks.greedy import greedy
from flipproof.attacks.known import known
from flipproof.attacks.random import random
from flipproof.attacks.search import Options
from flipproof.attacks.strongest import NAMES, by_name, strongest
from flipproof.attacks.transfer import TransferTable, transfer

__all__ = [
    "NAMES",
    "AttackResult",
    "Constraints",
    "Options",
    "TransferTable",
    "beam",
    "by_name",
    "genetic",
    "gradient",
    "greedy",
    "known",
    "random",
    "robust_accuracy",
    "strongest",
    "transfer",
]
