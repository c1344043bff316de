"""What counting more slots together is worth: the share of votes that the test of the lead needs, by its degree.

    python benchmarks/orders.py [--keep 0.7 0.8] [--slots 105] [--alpha 0.001]

A nominal classifier has the same share of votes whatever is flipped. Printed is the smallest share, of a fixed list, with which
it is expected to pass the test for all sets of r slots at level alpha / 2: a calculation from noise and sizes, without any graph.
"-": no share suffices.
"""

from __future__ import annotations

import argparse

import numpy as np

import flipproof as fp
from flipproof.certificates.influence.lead_test import Attack, LeadTest

SAMPLES = (10_000, 100_000)
DEGREES = (2, 3, 4, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=float, nargs="+", default=[0.7, 0.8])
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 4, 5, 6, 8])
    parser.add_argument("--slots", type=int, default=105)
    parser.add_argument("--alpha", type=float, default=0.001)
    options = parser.parse_args()
    print(
        "| keep | r | "
        + " | ".join(f"{samples:,}: degree {degree}" for samples in SAMPLES for degree in DEGREES)
        + " |"
    )
    print("|---" * (2 + len(SAMPLES) * len(DEGREES)) + "|")
    empty = np.zeros(options.slots, dtype=np.bool_)
    for keep in options.keep:
        for size in options.sizes:
            attack = Attack.of(fp.EdgeNoise(keep=keep), empty, adds=size, removes=0)
            cells = []
            for samples in SAMPLES:
                for degree in DEGREES:
                    test = LeadTest.of(attack, degree, samples=samples, level=options.alpha / 2)
                    cells.append("-" if test is None else f"{test.needed:g}")
            print(f"| {keep:g} | {size} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
