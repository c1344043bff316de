"""What a very large data set costs: time and peak memory of ``flipproof certify``, uninterrupted and killed on the way.

    python benchmarks/many_graphs.py [--graphs 100000] [--kills 3] [--defence voting local] [--workers 1] [--folder FOLDER]

Makes small graphs of three kinds (rings, trees, wheels, half of them with one pair flipped), trains a model on some of them, and
certifies all of them twice: in one go, and killed with SIGKILL at random points and continued. The certificates must be the
same, byte for byte. Then the run is verified, exported and reported. Prints Markdown. Memory is the sum over all processes of
a command of the most that each of them held; with several workers it counts twice what forked processes share.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

NAME = "MANY"
TRAINING = {
    "voting": ["--groups", "3", "--model", "gcn"],
    "local": ["--defence", "local"],
}
ASKING = {"voting": ["--depth", "0"], "local": ["--per-node", "3"]}


def write_graphs(root: Path, count: int) -> None:
    """A data set in the TU format."""
    folder, rng = root / NAME, np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    edges, members, labels, first = [], [], [], 1
    for number in range(count):
        nodes, kind = int(rng.integers(6, 12)), int(rng.integers(3))
        pairs = {
            0: lambda n: {(i, (i + 1) % n) for i in range(n)},
            1: lambda n: {(int(rng.integers(i)), i) for i in range(1, n)},
            2: lambda n: {(0, i) for i in range(1, n)} | {(i, i % (n - 1) + 1) for i in range(1, n)},
        }[kind](nodes)
        pairs = {(min(pair), max(pair)) for pair in pairs}
        if rng.random() < 0.5:
            u, v = sorted(rng.choice(nodes, 2, replace=False).tolist())
            pairs ^= {(u, v)}
        edges += [f"{first + a}, {first + b}\n{first + b}, {first + a}\n" for a, b in sorted(pairs)]
        members += [f"{number + 1}\n"] * nodes
        labels.append(f"{kind}\n")
        first += nodes
    for ending, lines in (("A", edges), ("graph_indicator", members), ("graph_labels", labels)):
        (folder / f"{NAME}_{ending}.txt").write_text("".join(lines))


class Cost(NamedTuple):
    """Seconds of wall and processor time, peak MiB, exit code."""

    wall: float
    spent: float
    peak: float
    code: int


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from flipproof.cli import main; raise SystemExit(main())", *arguments]


def measured(arguments: list[str], store: Path | None = None, kill_at: float | None = None) -> Cost:
    """What a command cost; killed once its store has so many bytes."""
    started, process = time.perf_counter(), subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    peaks: dict[int, float] = {}
    spent: dict[int, float] = {}
    while process.poll() is None:
        time.sleep(0.2)
        for pid in (process.pid, *workers_of(process.pid)):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            peaks[pid] = max(peaks.get(pid, 0.0), float(lines.get("VmHWM", "0 kB").split()[0]) / 1024)
            spent[pid] = max(spent.get(pid, 0.0), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        if kill_at is not None and store is not None:
            size = sum(part.stat().st_size for part in store.parent.glob(f"{store.name}*"))
            if size >= kill_at:
                process.kill()
    return Cost(time.perf_counter() - started, sum(spent.values()), sum(peaks.values()), process.wait())


def workers_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--defence", nargs="+", choices=TRAINING, default=list(TRAINING))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the points at which it is killed")
    parser.add_argument("--folder", type=Path, help="where everything is written; by default a temporary folder")
    options = parser.parse_args()
    home = options.folder or Path(tempfile.mkdtemp())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    write_graphs(home, options.graphs)
    data = ["--data", NAME, "--root", str(home)]
    print(f"| defence | step | wall s | processor s | ms per graph | peak MiB |\n|{' --- |' * 6}")
    for defence in options.defence:
        model, whole, killed = (home / f"{defence}-{part}" for part in ("model", "whole", "killed"))
        held = min(0.9, 1 - 400 / options.graphs)
        train = [
            *TRAINING[defence],
            "--test",
            f"{1 - (1 - held) * 0.9}",
            "--validation",
            f"{(1 - held) * 0.05}",
            "--epochs",
            "30",
        ]
        shutil.rmtree(model, ignore_errors=True)
        subprocess.run(command("train", *data, *train, "--out", str(model), "--quiet"), check=True)

        def certify(out: Path) -> list[str]:
            asked = ["--part", "all", "--workers", str(options.workers), "--quiet", *ASKING[defence]]  # noqa: B023
            return command("certify", "--model", str(model), *data, *asked, "--out", str(out))  # noqa: B023

        def show(step: str, *costs: Cost) -> None:
            wall, spent = (sum(cost[part] for cost in costs) for part in (0, 1))
            each, peak = spent / options.graphs * 1000, max(cost.peak for cost in costs)
            print(f"| {defence} | {step} | {wall:.0f} | {spent:.0f} | {each:.2f} | {peak:.0f} |", flush=True)  # noqa: B023

        for folder in (whole, killed):
            shutil.rmtree(folder, ignore_errors=True)
        uninterrupted = measured(certify(whole))
        assert uninterrupted.code == 0, uninterrupted
        show("certify", uninterrupted)
        size, points = (whole / "evidence.sqlite").stat().st_size, np.random.default_rng(options.seed)
        costs = []
        for share in sorted(points.uniform(0.02, 0.98, options.kills)):
            costs.append(measured(certify(killed), killed / "evidence.sqlite", share * size))
            assert costs[-1].code == -9, "it ended before it was killed"
            with closing(sqlite3.connect(f"file:{killed / 'evidence.sqlite'}", uri=True)) as stored:
                done = stored.execute("SELECT count(*) FROM finished").fetchone()[0]
            print(f"killed with {done} graphs done", file=sys.stderr, flush=True)
        costs.append(measured(certify(killed)))
        assert costs[-1].code == 0, costs
        show(f"certify, killed {options.kills} times", *costs)
        tables = [(folder / "certificates.parquet").read_bytes() for folder in (whole, killed)]
        assert tables[0] == tables[1], "other certificates after kills"
        print(
            f"\nthe same bytes: sha256 {hashlib.sha256(tables[0]).hexdigest()[:16]}, {size / 2**20:.0f} MiB of evidence\n"
        )
        for step, arguments in (
            ("verify", ["verify", str(killed), "--quiet"]),
            ("export", ["export", str(whole), "--out", str(home / f"{defence}.csv")]),
            ("report", ["report", str(whole)]),
        ):
            cost = measured(command(*arguments))
            show(f"{step}{'' if cost.code == 0 else f' (exit code {cost.code})'}", cost)
        page = whole / "report.html"
        if page.exists():
            print(f"\nreport.html: {page.stat().st_size / 2**20:.1f} MiB\n")


if __name__ == "__main__":
    main()
