"""How much of the paper's graphs a classifier that reads degrees can certify at all.

    python benchmarks/degree_limit.py                     # data seed 0
    python benchmarks/degree_limit.py --seeds 101,102

Two graphs with the same number of nodes whose degrees, in ascending order, differ by 2d in sum may be as few as d flips apart. If
d is at most 2r and their classes differ, not both are certified at r by anything that reads degrees alone. (That d flips suffice
is assumed; where they do not, the limit is higher.) The largest share of graphs without such a pair is a maximum independent set.
It is given twice: chosen by the test graphs themselves, which nobody can know, and by the training graphs, as a perfect learner
would choose it, who also knows the class of every test graph that was never seen in training.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

import flipproof as fp

RADII = (1, 2, 3, 5, 10)
Key = tuple[int, ...]


def key(graph: fp.Graph) -> Key:
    """Class and degrees."""
    return (int(graph.label or 0), *np.sort(graph.degrees).tolist())


def conflicts(keys: list[Key], radius: int) -> csr_array:
    """A row for every two that cannot both be certified."""
    pairs = [
        (first, second)
        for first in range(len(keys))
        for second in range(first)
        if len(keys[first]) == len(keys[second])
        and keys[first][0] != keys[second][0]
        and np.abs(np.subtract(keys[first][1:], keys[second][1:])).sum() <= 4 * radius
    ]
    rows = np.repeat(np.arange(len(pairs)), 2)
    return csr_array((np.ones(2 * len(pairs)), (rows, np.ravel(pairs).astype(int))), shape=(len(pairs), len(keys)))


def limits(seed: int) -> dict[str, list[float]]:
    """Shares of the test graphs at each radius."""
    parts = fp.datasets.split(fp.datasets.topologies(480, seed=seed), seed=seed, train=320)
    train, test = (Counter(map(key, part)) for part in (parts.train, parts.test))
    keys, found = sorted(train | test), dict[str, list[float]]()
    for name, known in (("chosen by the test graphs", test), ("chosen by the training graphs", train)):
        found[name] = []
        for radius in RADII:
            weights = np.array([known[one] + 1e-3 for one in keys])
            apart = LinearConstraint(conflicts(keys, radius), -np.inf, 1)
            chosen = milp(-weights, constraints=apart, integrality=np.ones(len(keys)), bounds=Bounds(0, 1)).x > 0.5
            found[name].append(sum(test[one] for one, kept in zip(keys, chosen, strict=True) if kept) / len(parts.test))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0", help="data seeds, separated by commas; their mean is printed")
    every = [limits(int(seed)) for seed in parser.parse_args().seeds.split(",")]
    print("| at most certified at r = | " + " | ".join(map(str, RADII)) + " |")
    print("|---" * (len(RADII) + 1) + "|")
    for name in every[0]:
        print(
            f"| {name} | "
            + " | ".join(f"{share:.3f}" for share in np.mean([one[name] for one in every], axis=0))
            + " |"
        )


if __name__ == "__main__":
    main()
