"""``flipproof radius``: how many edge flips a share of votes withstands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from flipproof.certificates.vote_share import radius
from flipproof.cli.options import option
from flipproof.noise import EdgeNoise

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What ``flipproof radius`` is asked for."""

    p_lower: float = option("Lower bound on the top class's share of votes.")
    p_upper: float | None = option("Upper bound on every other class's share.", None)
    keep: float | None = option("Probability that a node pair keeps its state (the paper's beta).", None, panel="Noise")
    add: float | None = option("Probability that an empty node pair gains an edge.", None, panel="Noise")
    remove: float | None = option("Probability that an edge is lost.", None, panel="Noise")
    as_json: bool = option("Print JSON only.", False, panel="Output", flags=("--json",))
    config: Path | None = option("TOML file of options; what is typed here prevails.", None, panel="Output")


def run(options: Options) -> None:
    """Compute and print."""
    noise = EdgeNoise(keep=options.keep, add=options.add, remove=options.remove)
    found = radius(options.p_lower, noise, options.p_upper)
    if options.as_json:
        shares = {"p_lower": options.p_lower, "p_upper": options.p_upper}
        print(json.dumps({"radius": found, **shares, "p_add": noise.p_add, "p_remove": noise.p_remove}))
    elif found == -1:
        print("nothing is certified: the top class is not sure to win even without an attack")
    else:
        print(f"radius {found}: no attack of at most {found} edge flip{'s' * (found != 1)} changes the prediction")
