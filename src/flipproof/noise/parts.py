"""Noises and groups as a user gives and a file stores them: several plain values each, as fields of a defence."""

from __future__ import annotations

from flipproof.errors import InputError
from flipproof.fields import Option, Parts
from flipproof.noise.feature_law import feature_noise_from
from flipproof.noise.groups import EdgeGroups
from flipproof.noise.law import EdgeNoise

EDGE_NOISE = Parts(
    (
        Option("keep", float, "Probability that a node pair keeps its state (the paper's beta)."),
        Option("add", float, "Probability that an empty node pair gains an edge."),
        Option("remove", float, "Probability that an edge is lost."),
    ),
    plain=lambda noise: {"add": noise.p_add, "remove": noise.p_remove},
    made=lambda values: EdgeNoise(**values),
    stored=("keep", "add", "remove"),
)
FEATURE_NOISE = Parts(
    (
        Option("label_keep", float, "Probability that a node keeps its label (one-hot node features)."),
        Option("bit_add", float, "Probability that a binary node feature becomes 1."),
        Option("bit_remove", float, "Probability that a binary node feature becomes 0."),
    ),
    plain=lambda noise: {} if noise is None else noise.plain(),
    made=feature_noise_from,
    stored=("label_keep", "bit_add", "bit_remove"),
)


def _groups(values: dict[str, int]) -> EdgeGroups:
    if "groups" not in values:
        raise InputError("voting needs a number of groups; got none (for instance groups 5)")
    return EdgeGroups(values["groups"], values.get("key", 0))


GROUPS = Parts(
    (Option("groups", int, "Number of sub-graphs per graph, for voting.", least=1),),
    plain=lambda groups: {"groups": groups.count} | ({"key": groups.key} if groups.key else {}),
    made=_groups,  # type: ignore[arg-type]
    stored=("groups", "key"),
)
