"""Writes benchmarks/splits: ten stratified folds of every data set of the benchmark, one file each.

    python benchmarks/make_splits.py --root DATA

The files are published. Running this again must give the same bytes; it is here to show where they come from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import flipproof as fp
from flipproof.datasets.splits import write_folds

NAMES = ("MUTAG", "PTC_MR", "NCI1", "PROTEINS", "ENZYMES", "AIDS", "IMDB-BINARY", "IMDB-MULTI")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="data")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "splits")
    options = parser.parse_args()
    write_folds(options.out / "topologies.json", fp.datasets.topologies(480, seed=0))
    for name in NAMES:
        write_folds(options.out / f"{name}.json", fp.datasets.tu(name, root=options.root))


if __name__ == "__main__":
    main()
