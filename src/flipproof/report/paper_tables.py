"""Tables for a paper: certified accuracy with intervals, and paired tests between runs; as LaTeX or as CSV in long format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flipproof import __version__
from flipproof.certificates.metrics import (
    Curve,
    PairedTest,
    compare_radii,
    mean_radius,
    mean_radius_interval,
    right_radii,
)
from flipproof.errors import InputError
from flipproof.graphs import IntArray
from flipproof.report.content import ATTACKERS, RADII, curve_limit
from flipproof.report.templates import Cell, latex_table, latex_text
from flipproof.report.wording import title
from flipproof.runs.certifying import line_in
from flipproof.runs.run_folder import CertifySettings
from flipproof.runs.table import Row, columns_of, read_table


@dataclass(frozen=True, eq=False)
class TableRun:
    """A finished run: what was asked, and its table of certificates."""

    name: str
    settings: CertifySettings
    rows: Sequence[Row]
    line: int | None = None
    """How many of its graphs a network that ignores edges answers right."""

    @cached_property
    def radii(self) -> dict[str, IntArray]:
        """For each attacker, the right radii."""
        found = columns_of(self.rows, "predicted", "label", *ATTACKERS)
        return {column: right_radii(found[column], found["predicted"], found["label"]) for column in ATTACKERS}

    @property
    def symmetric(self) -> bool:
        """Whether the radius says everything: no graph withstands more additions or removals alone."""
        return all((self.radii[column] == self.radii["radius"]).all() for column in ATTACKERS)

    @property
    def edge_blind(self) -> bool:
        """Whether no attack on edges can change any answer."""
        return self.settings.defence_class.edge_blind

    @property
    def defence(self) -> str:
        """The defence in words."""
        return title(self.settings.defence)

    @property
    def graphs(self) -> tuple[str, tuple[int, ...]]:
        """The same for two runs on the same graphs."""
        return self.settings.data_sha256, tuple(columns_of(self.rows, "graph")["graph"])


def read_runs(folders: Sequence[Path], names: Sequence[str]) -> list[TableRun]:
    """Finished runs, by their tables of certificates; a run without any label is refused."""
    runs = []
    for folder, name in zip(folders, names, strict=True):
        rows, line = read_table(folder), line_in(folder)
        runs.append(TableRun(name, CertifySettings.read(folder), rows, None if line is None else line.right(rows)))
    for folder, run in zip(folders, runs, strict=True):
        if all(label is None for label in columns_of(run.rows, "label")["label"]):
            raise InputError(
                f"{folder} certifies graphs without labels, so there is no certified accuracy (use --format csv)"
            )
    return runs


def _last_radius(runs: Sequence[TableRun]) -> int:
    seeing = [run for run in runs if not run.edge_blind]
    return curve_limit(int(found.max()) for run in seeing for found in run.radii.values())


def long_csv(runs: Sequence[TableRun], radii: Sequence[int] | None = None) -> str:
    """One row per run, attacker and radius; by default for all radii up to the first at which nothing is certified.

    ``low95`` and ``high95`` are the ends of the exact interval (Clopper-Pearson). The last three columns are of a network that
    ignores edges, on the same graphs under any attack; empty where the run has none.
    """
    shown = range(_last_radius(runs) + 1) if radii is None else radii
    lines = []
    for run in runs:
        settings, first = run.settings, run.rows[0]
        about = {"run": run.name, "data": settings.data, "part": settings.part, "model": settings.model}
        about |= {"defence": run.defence, "method": first["method"], "alpha": repr(float(first["alpha"]))}
        blind = None if run.line is None else Curve("edge-blind", (run.line,), len(run.rows))
        for attacker, words in ATTACKERS.items():
            curve = Curve.of(run.name, run.radii[attacker], max(shown))
            lines += [
                {
                    **about,
                    "attacker": words,
                    "radius": r,
                    "certified_graphs": curve.certified[r],
                    "graphs": curve.graphs,
                    **_shares("certified_accuracy", "", curve, r),
                    **_shares("edge_blind_accuracy", "edge_blind_", blind),
                }
                for r in shown
            ]
    return _csv(lines)


def _shares(name: str, prefix: str, curve: Curve | None, r: int = 0) -> dict[str, str]:
    values = [] if curve is None else [curve.accuracy[r], *(end[r] for end in curve.band)]
    shown = [f"{value:.6f}" for value in values] or [""] * 3
    return dict(zip((name, f"{prefix}low95", f"{prefix}high95"), shown, strict=True))


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    import pandas

    return str(pandas.DataFrame(lines).to_csv(index=False, lineterminator="\n"))


def compared(runs: Sequence[TableRun], radii: Sequence[int]) -> list[PairedTest]:
    """The first run against each other one; refuses runs on different graphs."""
    if len(runs) < 2:
        raise InputError("paired tests compare runs; got one (name at least two, the one of interest first)")
    for run in runs[1:]:
        if run.graphs != runs[0].graphs:
            raise InputError(
                f"paired tests need runs on the same graphs; {run.name} and {runs[0].name} certify different ones (certify the "
                "same data, split and part)"
            )
    return compare_radii({run.name: run.radii["radius"] for run in runs}, radii)


def paired_csv(runs: Sequence[TableRun], radii: Sequence[int] | None = None) -> str:
    """One row per run compared with the first one, and radius; see :class:`flipproof.certificates.metrics.PairedTest`."""
    plain = ("first", "second", "radius", "graphs", "both", "only_first", "only_second", "neither")
    return _csv(
        [
            {name: getattr(test, name) for name in plain}
            | {
                "difference": f"{test.difference:.6f}",
                "p_value": f"{test.p_value:.6g}",
                "p_holm": f"{test.adjusted:.6g}",
            }
            | {"comparisons": test.comparisons}
            for test in compared(runs, _shown(runs, radii))
        ]
    )


def _shown(runs: Sequence[TableRun], radii: Sequence[int] | None) -> Sequence[int]:
    """The radii asked for; by default a few, up to the first at which nothing is certified."""
    if radii is not None:
        return radii
    last = _last_radius(runs)
    return [r for r in RADII if r <= last]


def latex(runs: Sequence[TableRun], radii: Sequence[int] | None = None) -> str:
    """Certified accuracy of each run, with intervals; for several runs on the same graphs also the paired tests."""
    shown = _shown(runs, radii)
    parts = [f"% flipproof {__version__}; needs \\usepackage{{booktabs}}", _accuracy_table(runs, shown)]
    if len(runs) > 1:
        if all(run.graphs == runs[0].graphs for run in runs):
            parts.append(_paired_table(compared(runs, shown)))
        else:
            parts.append("% no paired tests: the runs certify different graphs")
    return "\n\n".join(parts) + "\n"


def _accuracy_table(runs: Sequence[TableRun], shown: Sequence[int]) -> str:
    attackers = ["radius"] if all(run.symmetric or run.edge_blind for run in runs) else list(ATTACKERS)
    several = len(attackers) > 1
    head = ["run", "defence", *(["attacker"] if several else []), *(f"$r={r}$" for r in shown), "average radius"]
    groups = [
        [
            [
                latex_text(run.name),
                latex_text(run.defence),
                *([ATTACKERS[attacker]] if several else []),
                *_share_cells(run, attacker, shown),
                _average_cell(run, attacker),
            ]
            for run in runs
        ]
        for attacker in attackers
    ]
    counts = sorted({len(run.rows) for run in runs})
    data = ", ".join(dict.fromkeys(latex_text(run.settings.data) for run in runs))
    caption = (
        r"Certified accuracy in per cent: the share of graphs that are classified correctly and provably stay so under any $r$ "
        f"edge flips; {' or '.join(map(str, counts))} graphs of {data}. In brackets, exact 95\\,\\% intervals "
        "(Clopper--Pearson) over graphs; for the average radius, in which wrong and abstained answers count 0, Student's."
    )
    caption += "".join(f" {sentence}" for sentence in _lines(runs))
    return latex_table(head, groups, caption=caption, label="tab:certified-accuracy", texts=3 if several else 2)


def _lines(runs: Sequence[TableRun]) -> list[str]:
    """What a network that ignores edges reaches, where it is known; once for runs on the same graphs."""
    best: dict[Any, tuple[int, TableRun]] = {}
    for run in runs:
        if run.line is not None and run.line >= best.get(run.graphs, (0, run))[0]:
            best[run.graphs] = run.line, run
    found = []
    for right, run in best.values():
        curve = Curve("edge-blind", (right,), len(run.rows))
        low, high = (end[0] for end in curve.band)
        share = f"{100 * curve.accuracy[0]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        which = "the same graphs" if len(best) == 1 else f"the graphs of {latex_text(run.name)}"
        found.append(f"A network that ignores edges is right on {share} per cent of {which}, under any flips.")
    return found


def _share_cells(run: TableRun, attacker: str, shown: Sequence[int]) -> list[Cell]:
    curve = Curve.of(run.name, run.radii[attacker], max(shown))
    low, high = curve.band
    return [(f"{100 * curve.accuracy[r]:.1f}", f"[{100 * low[r]:.1f}, {100 * high[r]:.1f}]") for r in shown]


def _average_cell(run: TableRun, attacker: str) -> Cell:
    if run.edge_blind:
        return "unlimited"
    found = run.radii[attacker]
    interval = mean_radius_interval(found)
    mean = f"{mean_radius(found):.2f}"
    return mean if interval is None else (mean, f"[{interval[0]:.2f}, {interval[1]:.2f}]")


def _paired_table(tests: Sequence[PairedTest]) -> str:
    first = latex_text(tests[0].first)
    rows = [
        [
            latex_text(test.second),
            f"${test.radius}$",
            _signed(100 * test.difference),
            str(test.only_first),
            str(test.only_second),
            _p_value(test.p_value),
            _p_value(test.adjusted),
        ]
        for test in tests
    ]
    groups = [[row for row in rows if row[0] == name] for name in dict.fromkeys(row[0] for row in rows)]
    caption = (
        f"{first} compared with the other runs on the same {tests[0].graphs} graphs: difference of certified accuracy in "
        f"percentage points, graphs that only one of the two certifies, and exact two-sided McNemar tests; the last column is "
        f"corrected for all {tests[0].comparisons} comparisons of this table (Holm)."
    )
    head = ["run", "$r$", "difference", f"only {first}", "only the other", "$p$", "$p$ (Holm)"]
    return latex_table(head, groups, caption=caption, label="tab:paired-tests")


def _p_value(value: float) -> str:
    return "$<0.001$" if value < 0.001 else f"${value:.3f}$"


def _signed(points: float) -> str:
    return f"${points:+.1f}$" if points else "$0.0$"
