"""What a protection is worth, in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flipproof.certificates.metrics import shown_share
from flipproof.studies.tuning import Target

__all__ = ["sentences"]


def sentences(summary: Mapping[str, Any], target: Target, again: str, *, blind: bool) -> list[str]:
    """What was chosen and why, what it is worth, and how to go on."""
    validation, attacked = summary["validation"], summary["under_attack"]
    chosen = summary["defence"]
    settings = ", ".join(f"{key} {value}" for key, value in summary["settings"].items())
    low, high = summary["interval"]
    tried, tested, few = len(summary["trials"]), summary["test_graphs"], attacked["graphs"]

    def shown(share: float, graphs: int = validation["graphs"]) -> str:
        return shown_share(share * graphs, graphs)

    if blind:
        first = (
            f"nothing beats ignoring edges: in none of {tried} trials were more of the {validation['graphs']} validation graphs "
            f"right with {target.words} than for the edge-blind network, {shown(validation['edge_blind'])}, so it is handed over"
        )
    else:
        first = (
            f"chosen: {chosen} ({settings}), the best of {tried} trials: {shown(validation['chosen'])} of "
            f"{validation['graphs']} validation graphs are right with {target.words}; a network that ignores edges: "
            f"{shown(validation['edge_blind'])}"
        )
    lines = [
        first,
        f"on {summary['test_graphs']} test graphs, not looked at before: {summary['withstood']:.3f} are right with "
        f"{target.words} (95% interval {low:.3f} to {high:.3f}); not attacked, "
        f"{shown(summary['accuracy'], tested)} are right (in brackets: 95% intervals)",
    ]
    if not blind:
        lines.append(
            f"a network that ignores edges is right on {shown(summary['edge_blind'], tested)} of them under any attack: "
            + _compared(summary["withstood"], summary["edge_blind"], low, high)
        )
    lines += [
        f"the model without defence is right on {shown(summary['undefended'], tested)} if nobody attacks, and nothing is "
        f"guaranteed under attack: an attacker leaves it {shown(attacked['undefended'], few)} of {few} graphs, and the chosen "
        f"one {shown(attacked['defended'], few)}",
        f"report: {summary['report']}",
        f"model: {summary['model']}; predict with: {summary['predict_command']}",
        f"in Python, predict with: {summary['predict']}",
    ]
    if again:
        lines.append(f"repeat it with: {again} (with another --out)")
    return [*lines, *(f"repeat the result alone with: {' && '.join(summary['next'])}" for _ in summary["next"][:1])]


def _compared(value: float, line: float, low: float, high: float) -> str:
    if value <= line:
        return "this result does not beat it on the test graphs; consider that network, in the folder edge_blind"
    if low <= line:
        return "this result is better, but by less than the interval"
    return "this result is better, by more than the interval"
