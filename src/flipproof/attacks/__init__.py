"""Attacks: the other side of the bound. A success with ``k`` flips says that no certificate can reach ``k``."""

from flipproof.attacks.attack_result import AttackResult, robust_accuracy
from flipproof.attacks.search import NAMES, Attack, by_name, exhaustive, gradient, greedy, known, random, strongest

__all__ = ["NAMES", "Attack", "AttackResult", "by_name", "exhaustive", "gradient", "greedy", "known", "random"]
__all__ += ["robust_accuracy", "strongest"]
