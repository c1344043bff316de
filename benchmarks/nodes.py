"""Certified accuracy of single nodes on Cora-ML, and samples per second: docs/benchmarks/nodes.md and nodes.csv.

    python benchmarks/nodes.py [--data ../shared/data/Cora-ML] [--splits 5] [--only accuracy speed] [--docs docs]

A two-layer GCN of width 64 is trained under the noise that certifies it, on 20 nodes of every class; 20 others choose the epoch,
all the rest is certified: attributes with BitNoise(add=0.01, remove=0.6) and edges with EdgeNoise(add=0, remove=0.6), separately,
1,000 samples, alpha 0.01 per node. The training was set on the validation nodes of split 0. Speed is one thread, processor time,
the same weights in PyG's GCNConv, ways in turns and the best of three rounds; flipproof without its
check that attributes do not give away edges, which a graph needs once and whose time is part of the sampling above.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.nn import GCNConv

import flipproof as fp
from flipproof.datasets import NodeTask, citation, split_nodes
from flipproof.noise import BLOCK
from flipproof.report.templates import markdown_table
from flipproof.studies.provenance import stamp

ALPHA, SAMPLES = 0.01, 1000
CHANGES = (0, 1, 3, 5, 10)
STILL = fp.EdgeNoise(add=0, remove=0)
NOISES: dict[str, tuple[fp.EdgeNoise, Any]] = {
    "edges": (fp.EdgeNoise(add=0, remove=0.6), None),
    "attributes": (STILL, fp.BitNoise(add=0.01, remove=0.6)),
}
TRAINING = {"epochs": 150, "learning_rate": 0.01, "weight_decay": 0.01}


def network(task: NodeTask, seed: int) -> fp.models.NodeGCN:
    assert task.graph.node_features is not None
    return fp.models.NodeGCN(task.graph.node_features.shape[1], task.num_classes, hidden=64, seed=seed)


def certified(grid: Any, kind: str, adds: int, removes: int) -> bool:
    """Whether so many additions or removals are certified, of edges, or of bits with edges untouched."""
    if kind == "attributes" and grid.size:
        grid = grid[0]
    return adds < grid.shape[0] and removes < grid.shape[1] and bool(grid[adds, removes])


def accuracy(task: NodeTask, kind: str, seed: int) -> dict[str, Any]:
    """One split: accuracy without noise, of the smoothed answers, and certified."""
    noise, feature_noise = NOISES[kind]
    parts, model = split_nodes(task, seed=seed), network(task, seed)
    fp.train_nodes(model, task, split=parts, noise=noise, feature_noise=feature_noise, seed=seed, **TRAINING)
    smooth = fp.SmoothedClassifier(model, noise, feature_noise=feature_noise)
    started = time.process_time()
    votes = smooth.sample_nodes(task.graph, samples=SAMPLES, seed=seed)
    sampled = time.process_time()
    certificates = votes.certificates(parts.test, alpha=ALPHA)
    read, labels = time.process_time(), task.labels[parts.test].tolist()
    right = [(c, c.label == label) for c, label in zip(certificates, labels, strict=True)]
    row: dict[str, Any] = {"kind": kind, "split": seed, "nodes": len(labels)}
    row["abstained"] = float(np.mean([c.abstains for c in certificates]))
    for count in CHANGES:
        for name, attack in (("deletions", (0, count)), ("additions", (count, 0))):
            row[f"{name} {count}"] = float(np.mean([hit and certified(c.grid, kind, *attack) for c, hit in right]))
    return row | {"seconds to sample": sampled - started, "seconds to read": read - sampled}


class PlainGCN(torch.nn.Module):
    """The same weights in PyG's layers."""

    def __init__(self, own: fp.models.NodeGCN) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for linear in own.convolutions:
            layer = GCNConv(linear.in_features, linear.out_features)
            layer.load_state_dict({"lin.weight": linear.weight, "bias": linear.bias})
            self.layers.append(layer)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        first, second = self.layers
        return second(first(x, edge_index).relu(), edge_index)


def plain(task: NodeTask, model: PlainGCN, kind: str, copies: int, samples: int) -> torch.Tensor:
    """Votes as one writes them with PyG: so many copies at a time, noise drawn by torch, edges and cells independently."""
    graph, counts = task.graph, torch.zeros(task.graph.num_nodes, task.num_classes, dtype=torch.int64)
    x, edges, nodes = (
        torch.from_numpy(graph.node_features.copy()),
        torch.from_numpy(graph.edges.T.copy()),
        graph.num_nodes,
    )
    with torch.inference_mode():
        for _ in range(samples // copies):
            rows, lists = [], []
            for copy in range(copies):
                kept, shown = edges, x
                if kind == "edges":
                    kept = edges[:, torch.rand(edges.shape[1]) >= 0.6]
                else:
                    draws = torch.rand_like(x)
                    shown = torch.where(x > 0, draws >= 0.6, draws < 0.01).float()
                rows.append(shown)
                lists.append(torch.cat([kept, kept.flip(0)], dim=1) + copy * nodes)
            union = (rows[0], lists[0]) if copies == 1 else (torch.cat(rows), torch.cat(lists, dim=1))
            for labels in model(*union).argmax(dim=1).view(copies, nodes):
                counts[torch.arange(nodes), labels] += 1
    return counts


def speed(task: NodeTask) -> list[dict[str, Any]]:
    """Samples per second of a loop over copies, of ten copies at a time, and of flipproof."""
    rows = []
    for kind, (noise, feature_noise) in NOISES.items():
        own = network(task, 0).eval()
        model = PlainGCN(own).eval()
        smooth = fp.SmoothedClassifier(own, noise, feature_noise=feature_noise, trust_features=True)
        ways = {
            "loop": (lambda: plain(task, model, kind, 1, 20), 20),  # noqa: B023
            "ten": (lambda: plain(task, model, kind, 10, 20), 20),  # noqa: B023
            "flipproof": (lambda: smooth.sample_nodes(task.graph, samples=BLOCK, seed=0), BLOCK),  # noqa: B023
        }
        best = dict.fromkeys(ways, np.inf)
        for _ in range(3):
            for way, (work, samples) in ways.items():
                started = time.process_time()
                work()
                best[way] = min(best[way], (time.process_time() - started) / samples)
        rows.append({"kind": kind, **{way: 1 / each for way, each in best.items()}})
    return rows


def page(found: list[dict[str, Any]], speeds: list[dict[str, Any]]) -> str:
    parts = [
        "# Single nodes: Cora-ML\n",
        f"Made by `python benchmarks/nodes.py`. {' '.join((__doc__ or '').split(chr(10) * 2)[2].split())}\n",
    ]
    for kind in NOISES:
        rows = [row for row in found if row["kind"] == kind]
        if not rows:
            continue
        lines = []
        for name in ("deletions", "additions"):
            cells = [np.array([row[f"{name} {count}"] for row in rows]) for count in CHANGES]
            lines.append([name, *(f"{cell.mean():.3f} ± {cell.std(ddof=len(cell) > 1):.3f}" for cell in cells)])
        seconds = [np.mean([row[f"seconds to {what}"] for row in rows]) for what in ("sample", "read")]
        parts += [
            f"## Attacks on {kind}\n",
            f"Certified accuracy over {rows[0]['nodes']:,} test nodes; {len(rows)} split{'s' * (len(rows) != 1)}, mean and "
            f"standard deviation. Abstained: {np.mean([row['abstained'] for row in rows]):.3f}. Sampling, checks included, took "
            f"{seconds[0]:.1f} s, reading all certificates {seconds[1]:.2f} s.\n",
            "\n".join(markdown_table([["changes", *map(str, CHANGES)], *lines])) + "\n",
        ]
    if speeds:
        rows = [
            [row["kind"], *(f"{row[way]:,.0f}" for way in ("loop", "ten", "flipproof")),
             f"{row['flipproof'] / row['loop']:.1f}", f"{row['flipproof'] / row['ten']:.1f}"]
            for row in speeds
        ]  # fmt: skip
        head = [
            "noise on",
            "PyG, copy by copy",
            "PyG, ten copies",
            "flipproof",
            "times copy by copy",
            "times ten copies",
        ]
        parts += ["## Samples per second\n", "\n".join(markdown_table([head, *rows])) + "\n"]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default="../shared/data/Cora-ML")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=["accuracy", "speed"], default=["accuracy", "speed"])
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    task, found = citation(options.data), []
    speeds = speed(task) if "speed" in options.only else []
    for row in speeds:
        print(row, flush=True)
    for seed in range(options.splits if "accuracy" in options.only else 0):
        for kind in NOISES:
            found.append(accuracy(task, kind, seed))
            print(found[-1], flush=True)
    folder = options.docs / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    title, _, rest = page(found, speeds).partition("\n\n")
    (folder / "nodes.md").write_text(f"{title}\n\n{stamp()}\n\n{rest}", encoding="utf-8")
    if found:
        with (folder / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, found[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
