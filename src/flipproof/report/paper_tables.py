"""Tables for a paper: certified accuracy with intervals, and paired tests between runs; as LaTeX or as CSV in long format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas

from flipproof import __version__
from flipproof.certificates.metrics import Curve, PairedTest, mean_radius, mean_radius_interval
from flipproof.errors import InputError
from flipproof.report.content import ATTACKERS, RADII, CertifiedRun, curve_range, paired
from flipproof.report.templates import Cell, latex_table, latex_text, rendered

_CSV: Any = {"index": False, "lineterminator": "\n", "float_format": "%.6f"}
_COUNTS = ["both", "only_first", "only_second", "neither", "difference"]


def long_csv(runs: Sequence[CertifiedRun], radii: Sequence[int] | None = None) -> str:
    """One row per run, attacker and radius, by default up to the first at which nothing is certified; see docs/papers.md."""
    shown, lines = range(curve_range(runs) + 1) if radii is None else radii, []
    for run in runs:
        settings, first = run.settings, run.rows[0]
        about = {"run": run.name, "data": settings.data, "part": settings.part, "model": settings.model}
        about |= {"defence": run.defence, "method": first["method"], "alpha": repr(float(first["alpha"]))}
        for attacker, words in ATTACKERS.items():
            curve = Curve.of(run.name, run.radii[attacker], max(shown))
            for r in shown:
                counts = {"radius": r, "certified_graphs": curve.certified[r], "graphs": curve.graphs}
                shares = _ends("certified_accuracy", "", curve, r)
                line = _ends("edge_blind_accuracy", "edge_blind_", _line(run))
                lines.append({**about, "attacker": words, **counts, **shares, **line})
    return str(pandas.DataFrame(lines).to_csv(**_CSV))


def _line(run: CertifiedRun) -> Curve | None:
    return None if run.line is None else Curve("edge-blind", (run.line,), len(run.rows))


def _ends(share: str, prefix: str, curve: Curve | None, r: int = 0) -> dict[str, float | None]:
    values = [None] * 3 if curve is None else [curve.accuracy[r], *(end[r] for end in curve.band)]
    return dict(zip((share, f"{prefix}low95", f"{prefix}high95"), values, strict=True))


def paired_csv(runs: Sequence[CertifiedRun], radii: Sequence[int] | None = None) -> str:
    """One row per run compared with the first one, and radius; see :class:`flipproof.certificates.metrics.PairedTest`."""
    if len(runs) < 2:
        raise InputError("paired tests compare runs; got one (name at least two, the one of interest first)")
    for run in runs[1:]:
        if run.graphs_key != runs[0].graphs_key:
            raise InputError(
                f"paired tests need runs on the same graphs; {run.name} and {runs[0].name} certify different ones (certify the "
                "same data, split and part)"
            )
    lines = []
    for test in paired(runs, _shown(runs, radii)):
        told = {name: getattr(test, name) for name in ("first", "second", "radius", "graphs", *_COUNTS)}
        chances = {"p_value": f"{test.p_value:.6g}", "p_holm": f"{test.adjusted:.6g}", "comparisons": test.comparisons}
        lines.append(told | chances)
    return str(pandas.DataFrame(lines).to_csv(**_CSV))


def _shown(runs: Sequence[CertifiedRun], radii: Sequence[int] | None) -> Sequence[int]:
    return [r for r in RADII if r <= curve_range(runs)] if radii is None else radii


def latex(runs: Sequence[CertifiedRun], radii: Sequence[int] | None = None) -> str:
    """Certified accuracy of each run, with intervals; for several runs on the same graphs also the paired tests."""
    shown = _shown(runs, radii)
    parts = [f"% flipproof {__version__}; needs \\usepackage{{booktabs}}", _accuracy_table(runs, shown)]
    if tests := paired(runs, shown):
        parts.append(_paired_table(tests))
    elif len(runs) > 1:
        parts.append("% no paired tests: the runs certify different graphs")
    return "\n\n".join(parts) + "\n"


def _accuracy_table(runs: Sequence[CertifiedRun], shown: Sequence[int]) -> str:
    attackers = ["radius"] if all(run.symmetric or run.edge_blind for run in runs) else list(ATTACKERS)
    several, groups = len(attackers) > 1, []
    head = ["run", "defence", *["attacker"] * several, *(f"$r={r}$" for r in shown), "average radius"]
    for attacker in attackers:
        kind = [ATTACKERS[attacker]] * several
        groups.append(
            [[latex_text(run.name), latex_text(run.defence), *kind, *_cells(run, attacker, shown)] for run in runs]
        )
    best: dict[Any, CertifiedRun] = {}
    for run in runs:
        if run.line is not None and run.line >= (best.get(run.graphs_key, run).line or 0):
            best[run.graphs_key] = run
    caption = rendered(
        "accuracy_caption.txt",
        counts=sorted({len(run.rows) for run in runs}),
        data=list(dict.fromkeys(latex_text(run.settings.data) for run in runs)),
        lines=[(latex_text(run.name), *_share(_line(run))) for run in best.values()],
    ).replace("\n", "")
    return latex_table(head, groups, caption=caption, label="tab:certified-accuracy", texts=2 + several)


def _share(curve: Any, r: int = 0) -> tuple[str, str]:
    low, high = (100 * end[r] for end in curve.band)
    return f"{100 * curve.accuracy[r]:.1f}", f"[{low:.1f}, {high:.1f}]"


def _cells(run: CertifiedRun, attacker: str, shown: Sequence[int]) -> list[Cell]:
    radii = run.radii[attacker]
    curve, interval = Curve.of(run.name, radii, max(shown)), mean_radius_interval(radii)
    mean = f"{mean_radius(radii):.2f}"
    average: Cell = mean if interval is None else (mean, f"[{interval[0]:.2f}, {interval[1]:.2f}]")
    return [*(_share(curve, r) for r in shown), "unlimited" if run.edge_blind else average]


def _paired_table(tests: Sequence[PairedTest]) -> str:
    first, groups = latex_text(tests[0].first), dict[str, list[list[str]]]()
    for test in tests:
        difference = f"${100 * test.difference:+.1f}$" if test.difference else "$0.0$"
        chances = ["$<0.001$" if value < 0.001 else f"${value:.3f}$" for value in (test.p_value, test.adjusted)]
        counts = [str(test.only_first), str(test.only_second)]
        row = [latex_text(test.second), f"${test.radius}$", difference, *counts, *chances]
        groups.setdefault(test.second, []).append(row)
    head = ["run", "$r$", "difference", f"only {first}", "only the other", "$p$", "$p$ (Holm)"]
    caption = rendered("paired_caption.txt", first=first, test=tests[0]).strip()
    return latex_table(head, list(groups.values()), caption=caption, label="tab:paired-tests")
