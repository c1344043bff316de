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
from flipproof.datasets.splits import in_several_classes
from flipproof.defences import defence_classes
from flipproof.errors import InputError

__all__ = ["Options", "described", "run"]


@dataclass(frozen=True)
class Options(OutputOptions, SourceOptions):
    """What ``flipproof describe`` is asked for."""


def run(options: Options) -> int:
    """Print what was read. The exit code."""
    graphs = DataSource(options.data, options.root, options.download, options.data_seed).load()
    found = described(graphs)
    if options.as_json:
        print(json.dumps(found, allow_nan=False))
    elif not options.quiet:
        several = found["in_several_classes"]
        lines = [
            *graphs.describe().splitlines(),
            f"  on average {found['nodes']:.1f} nodes and {found['edges']:.1f} edges; {found['density']:.1%} of the node pairs "
            "are joined",
            *graphs.describe_features().splitlines(),
        ]
        if found["clean_edges"]:
            lines.append(f"these features would be refused: {found['clean_edges']}")
        if several:
            lines.append(
                f"{several} graph{'s' * (several != 1)} also occur{'s' * (several == 1)} in another class, with other node "
                "numbers: no model can be right about all of them"
            )
        print_lines([*lines, f"defences worth trying: {', '.join(found['defences'])}"])
    return 0


def described(graphs: Dataset) -> dict[str, Any]:
    """What is to be said about a data set; plain JSON."""
    sizes = np.array([graph.num_nodes for graph in graphs])
    edges = np.array([graph.num_edges for graph in graphs])
    counts = np.bincount(graphs.labels, minlength=graphs.num_classes)
    try:
        refuse_clean_edges(list(graphs), graphs.feature_names)
        refused = None
    except InputError as error:
        refused = str(error)
    return {
        "data": graphs.name,
        "graphs": len(graphs),
        "classes": dict(zip(graphs.class_names, counts.tolist(), strict=True)),
        "nodes": float(sizes.mean()),
        "edges": float(edges.mean()),
        "density": float(edges.sum() / max(1, (sizes * (sizes - 1) // 2).sum())),
        "node_features": graphs.num_node_features,
        "attributes": [asdict(attribute) for attribute in graphs.attributes],
        "clean_edges": refused,
        "in_several_classes": int(in_several_classes(graphs).sum()),
        "defences": [kind.title(settings) for kind in defence_classes() for settings in kind.candidates(graphs)],
    }
