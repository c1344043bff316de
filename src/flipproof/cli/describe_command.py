"""``flipproof describe``: what was read of a data set, before anything is trained on it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from flipproof.classifiers.clean_edges import refuse_clean_edges
from flipproof.cli.options import OutputOptions, SourceOptions
from flipproof.cli.summary import print_lines
from flipproof.datasets import Dataset
from flipproof.datasets.sources import DataSource
from flipproof.datasets.splits import in_several_classes, isomorphism_groups
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.report.wording import wording
from flipproof.studies.search_space import Space, spaces
from flipproof.studies.tuning import typed_command

__all__ = ["Options", "described", "run"]


@dataclass(frozen=True)
class Options(OutputOptions, SourceOptions):
    """What ``flipproof describe`` is asked for."""


def run(options: Options) -> int:
    """Print what was read. The exit code."""
    source = DataSource(options.data, options.root, options.download, options.data_seed, symmetrise=options.symmetrise)
    graphs = source.load()
    found = described(graphs)
    if options.as_json:
        print(json.dumps(found, allow_nan=False))
    elif not options.quiet:
        print_lines([*graphs.describe().splitlines(), *_shape(found), *graphs.describe_features().splitlines()])
        named: dict[str, Any] = {"data": options.data, "root": options.root, "symmetrise": options.symmetrise}
        named |= {"data_seed": options.data_seed or None, "radius": 1, "out": "protected"}
        again = f"next: {typed_command('protect', named)} (tries them all), or flipproof train for one of them"
        print_lines([*_warnings(found), *_reach(found), again])
    return 0


def described(graphs: Dataset) -> dict[str, Any]:
    """What is to be said about a data set; plain JSON."""
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
        "density": float(edges.sum() / max(1, pairs.sum())),
        "nodes_quartiles": np.quantile(sizes, (0, 0.25, 0.5, 0.75, 1)).tolist(),
        "edges_quartiles": np.quantile(edges, (0, 0.25, 0.5, 0.75, 1)).tolist(),
        "node_features": graphs.num_node_features,
        "attributes": [asdict(attribute) for attribute in graphs.attributes],
        "remarks": list(graphs.remarks),
        "clean_edges": refused,
        "different_graphs": len(np.unique(groups)),
        "repeated_graphs": int((np.bincount(groups)[groups] > 1).sum()),
        "in_several_classes": int(in_several_classes(graphs, groups).sum()),
        "usual_nodes": usual.num_nodes,
        "defences": [
            _candidate(kind, settings, graphs, usual) for kind in spaces() for settings in kind.candidates(graphs)
        ],
    }


def _candidate(kind: Space, settings: dict[str, Any], graphs: Dataset, usual: Graph) -> dict[str, Any]:
    """A defence worth trying, and how far it can reach on a graph of usual size."""
    reaches = {
        effort: best
        for effort, values in kind.efforts
        if (best := kind.best(usual, kind.request(values), settings, graphs.num_classes)) is not None
    }
    return {
        "defence": {"name": kind.name, **settings},
        "title": kind.title(settings),
        "effect": wording(kind.name).effect(settings, graphs),
        "radius": {effort: best.radius for effort, best in reaches.items()},
        "additions": {effort: best.adds_radius for effort, best in reaches.items()},
        "removals": {effort: best.removes_radius for effort, best in reaches.items()},
    }


def _shape(found: dict[str, Any]) -> list[str]:
    return [
        f"  on average {found['nodes']:.1f} nodes and {found['edges']:.1f} edges; {found['density']:.1%} of the node pairs are "
        "joined",
        f"  always naming the most frequent class is right on {found['majority']:.1%}",
    ]


def _warnings(found: dict[str, Any]) -> list[str]:
    """What a user should know before training."""
    lines, repeated, several = [], found["repeated_graphs"], found["in_several_classes"]
    if found["clean_edges"]:
        lines.append(f"these features would be refused: {found['clean_edges']}")
    if repeated:
        lines.append(
            f"{repeated} graphs occur more than once, with other node numbers: {found['different_graphs']} of "
            f"{found['graphs']} are different (decided exactly, node features included), so test graphs can equal training graphs"
        )
    if several:
        lines.append(
            f"{several} graph{'s' * (several != 1)} also occur{'s' * (several == 1)} in another class, with other node numbers: "
            "no model can be right about all of them"
        )
    return lines


def _reach(found: dict[str, Any]) -> list[str]:
    """The defences worth trying, each with the radius that it can reach."""
    candidates = found["defences"]
    efforts = list(dict.fromkeys(effort for entry in candidates for effort in entry["radius"]))
    rows = [["defence", *efforts, ""]]
    rows += [
        [entry["title"], *(_radius(entry, effort) for effort in efforts), entry["effect"]]
        if entry["radius"]
        else [entry["title"], entry["effect"]]
        for entry in candidates
    ]
    widths = [max(len(row[column]) for row in rows if len(row) > column + 1) for column in range(len(efforts) + 1)]
    table = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)), row[-1]])
        for row in rows
    ]
    return [
        f"defences worth trying, and the largest radius within reach on a graph of {found['usual_nodes']} nodes",
        *(f"  {line}".rstrip() for line in table),
        "  (of samples that all agree, alpha 0.001; in brackets: against additions only, removals only)",
    ]


def _radius(entry: dict[str, Any], effort: str) -> str:
    radius, adds, removes = (entry[attacker][effort] for attacker in ("radius", "additions", "removals"))
    return f"{radius}" if radius == adds == removes else f"{radius} ({adds}, {removes})"
