"""``flipproof describe`` and ``radius``: what can be known before anything is trained, of data and of the mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flipproof.certificates.certificate import shortened
from flipproof.certificates.vote_share import radius as vote_radius
from flipproof.classifiers.clean_edges import refuse_clean_edges
from flipproof.cli.options import OutputOptions, Result, SourceOptions
from flipproof.datasets import Dataset
from flipproof.datasets.splits import isomorphism_groups
from flipproof.errors import InputError
from flipproof.fields import from_plain, option
from flipproof.graphs import Graph
from flipproof.noise import EdgeNoise
from flipproof.report.templates import rendered
from flipproof.report.wording import wording
from flipproof.studies.search_space import Space, spaces
from flipproof.studies.tuning import typed_command


@dataclass(frozen=True, kw_only=True)
class RadiusOptions(OutputOptions):
    p_lower: float = option("Lower bound on the top class's share of votes.")
    p_upper: float | None = option("Upper bound on every other class's share.", None)
    keep: float | None = option("Probability that a node pair keeps its state (the paper's beta).", None, panel="Noise")
    add: float | None = option("Probability that an empty node pair gains an edge.", None, panel="Noise")
    remove: float | None = option("Probability that an edge is lost.", None, panel="Noise")


def radius(options: RadiusOptions) -> Result:
    noise = EdgeNoise(keep=options.keep, add=options.add, remove=options.remove)
    flips = vote_radius(options.p_lower, noise, options.p_upper)
    line = f"radius {flips}: no attack of at most {flips} edge flip{'s' * (flips != 1)} changes the prediction"
    if flips == -1:
        line = "nothing is certified: the top class is not sure to win even without an attack"
    summary = {"radius": flips, "p_lower": options.p_lower, "p_upper": options.p_upper}
    return Result(summary | {"p_add": shortened(noise.p_add), "p_remove": shortened(noise.p_remove)}, [line])


@dataclass(frozen=True, kw_only=True)
class DescribeOptions(OutputOptions, SourceOptions):
    """A data set, and nothing else."""


def describe(options: DescribeOptions) -> Result:
    graphs = options.source.load()
    summary = described(graphs)
    typed: dict[str, Any] = {"data": options.data, "root": options.root, "symmetrise": options.symmetrise}
    typed |= {"data_seed": options.data_seed or None, "radius": 1, "out": "protected"}
    command, reach = typed_command("protect", typed), _reach(summary["defences"])
    words = rendered("described.txt", **{**summary, "graphs": graphs}, reach=reach, command=command)
    return Result(summary, words.splitlines())


def described(graphs: Dataset) -> dict[str, Any]:
    sizes = np.array([graph.num_nodes for graph in graphs])
    edges = np.array([graph.num_edges for graph in graphs])
    pairs = sizes * (sizes - 1) // 2
    counts = np.bincount(graphs.labels, minlength=graphs.num_classes)
    try:
        refuse_clean_edges(list(graphs), graphs.feature_names)
        refused = None
    except InputError as error:
        refused = str(error)
    groups = isomorphism_groups(graphs)
    usual = sorted(graphs, key=lambda graph: graph.num_slots)[len(graphs) // 2]
    return {
        "data": graphs.name,
        "graphs": len(graphs),
        "classes": dict(zip(graphs.class_names, counts.tolist(), strict=True)),
        "majority": float(counts.max() / len(graphs)),
        "nodes": float(sizes.mean()),
        "edges": float(edges.mean()),
        "nodes_without_edge": int(sum((graph.degrees == 0).sum() for graph in graphs)),
        "density": float(edges.sum() / max(1, pairs.sum())),
        "node_features": graphs.num_node_features,
        "attributes": [asdict(attribute) for attribute in graphs.attributes],
        "remarks": list(graphs.remarks),
        "clean_edges": refused,
        "different_graphs": len(np.unique(groups)),
        "repeated_graphs": int((np.bincount(groups)[groups] > 1).sum()),
        "in_several_classes": int(np.isin(groups, groups[graphs.labels != graphs.labels[groups]]).sum()),
        "usual_nodes": usual.num_nodes,
        "defences": [
            _candidate(kind, settings, graphs, usual) for kind in spaces() for settings in kind.candidates(graphs)
        ],
    }


def _candidate(kind: Space, settings: dict[str, Any], graphs: Dataset, usual: Graph) -> dict[str, Any]:
    defence = from_plain(kind.kind, settings)
    reaches = {effort: defence.best(usual, kind.request(values), graphs.num_classes) for effort, values in kind.efforts}
    known = {effort: best for effort, best in reaches.items() if best is not None}
    return {
        "defence": {"name": kind.name, **settings},
        "title": kind.title(settings),
        "effect": wording(kind.name).effect(settings, graphs),
        "radius": {effort: best.radius for effort, best in known.items()},
        "additions": {effort: best.adds_radius for effort, best in known.items()},
        "removals": {effort: best.removes_radius for effort, best in known.items()},
    }


def _reach(candidates: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The defences worth trying, each with the radius that it can reach, as columns of one width."""
    efforts = list(dict.fromkeys(effort for entry in candidates for effort in entry["radius"]))
    rows = [["defence", *efforts, ""]]
    for entry in candidates:
        reached = [_radius(entry, effort) if entry["radius"] else "" for effort in efforts]
        rows.append([entry["title"], *reached, entry["effect"]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [list(map(str.ljust, cells, widths)) for cells in rows]


def _radius(entry: dict[str, Any], effort: str) -> str:
    radius, adds, removes = (entry[attacker][effort] for attacker in ("radius", "additions", "removals"))
    if radius < 0:
        return "abstains"
    return f"{radius}" if radius == adds == removes else f"{radius} ({adds}, {removes})"
