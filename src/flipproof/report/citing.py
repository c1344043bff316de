"""What to cite: BibTeX entries for flipproof and for the methods that a run rests on."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flipproof.report.html import asset
from flipproof.report.wording import wording
from flipproof.runs.settings import CertifySettings

__all__ = ["bibtex", "entries"]


def entries() -> dict[str, str]:
    """All entries by key, in the order of ``references.bib``."""
    found = re.split(r"\n\n(?=@)", asset("references.bib").strip())
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in found}


def bibtex(runs: Sequence[CertifySettings]) -> str:
    """The entries for flipproof, and for what the defences of these runs rest on."""
    keys = dict.fromkeys(["flipproof", *(key for run in runs for key in wording(run.defence["name"]).references)])
    known = entries()
    return "\n\n".join(known[key] for key in keys) + "\n"
