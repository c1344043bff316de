"""What a very large data set costs: time and peak memory of ``flipproof certify``, uninterrupted and killed on the way.

    python benchmarks/many_graphs.py [--graphs 100000] [--kills 3] [--defence voting local] [--folder FOLDER]

Makes small graphs of three kinds (rings, trees, wheels, half of them with one pair flipped), trains a model on some of them, and
certifies all of them twice: in one go, and killed with SIGKILL several times and continued. The certificates must be the same,
byte for byte. Then the run is exported and reported. One worker, one thread. Prints Markdown.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

NAME = "MANY"
TRAINING = {
    "voting": ["--groups", "3", "--model", "gcn"],
    "local": ["--defence", "local"],
}
ASKING = {"voting": ["--depth", "0"], "local": []}


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


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from flipproof.cli import main; raise SystemExit(main())", *arguments]


def measured(arguments: list[str], store: Path | None = None, kill_at: float | None = None) -> tuple[float, float, int]:
    """Processor seconds and peak MiB of a command, and its exit code; killed once its store has so many bytes."""
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
    peak, spent = 0.0, 0.0
    while process.poll() is None:
        time.sleep(0.2)
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        peak = max(peak, float(lines.get("VmHWM", "0 kB").split()[0]) / 1024)
        spent = max(spent, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        if kill_at is not None and store is not None:
            size = sum(part.stat().st_size for part in store.parent.glob(f"{store.name}*"))
            if size >= kill_at:
                process.kill()
    return spent, peak, process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--defence", nargs="+", choices=TRAINING, default=list(TRAINING))
    parser.add_argument("--folder", type=Path, help="where everything is written; by default a temporary folder")
    options = parser.parse_args()
    home = options.folder or Path(tempfile.mkdtemp())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    write_graphs(home, options.graphs)
    data = ["--data", NAME, "--root", str(home)]
    print("| defence | step | processor s | ms per graph | peak MiB |\n| --- | --- | --- | --- | --- |")
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
            asked = ["--part", "all", "--workers", "1", "--quiet", *ASKING[defence]]  # noqa: B023
            return command("certify", "--model", str(model), *data, *asked, "--out", str(out))  # noqa: B023

        def show(step: str, spent: float, peak: float) -> None:
            print(
                f"| {defence} | {step} | {spent:.0f} | {spent / options.graphs * 1000:.2f} | {peak:.0f} |",  # noqa: B023
                flush=True,
            )

        for folder in (whole, killed):
            shutil.rmtree(folder, ignore_errors=True)
        spent, peak, code = measured(certify(whole))
        assert code == 0, code
        show("certify", spent, peak)
        size, total = (whole / "evidence.sqlite").stat().st_size, 0.0
        for number in range(options.kills):
            share = (number + 1) / (options.kills + 1)
            spent, peak, code = measured(certify(killed), killed / "evidence.sqlite", share * size)
            assert code == -9, "it ended before it was killed"
            total += spent
        spent, peak, code = measured(certify(killed))
        assert code == 0, code
        show(f"certify, killed {options.kills} times", total + spent, peak)
        tables = [(folder / "certificates.parquet").read_bytes() for folder in (whole, killed)]
        assert tables[0] == tables[1], "other certificates after kills"
        print(
            f"\nthe same bytes: sha256 {hashlib.sha256(tables[0]).hexdigest()[:16]}, {size / 2**20:.0f} MiB of evidence\n"
        )
        for step, arguments in (
            ("export", ["export", str(whole), "--out", str(home / f"{defence}.csv")]),
            ("report", ["report", str(whole)]),
        ):
            spent, peak, code = measured(command(*arguments))
            show(f"{step}{'' if code == 0 else f' (exit code {code})'}", spent, peak)
        page = whole / "report.html"
        if page.exists():
            print(f"\nreport.html: {page.stat().st_size / 2**20:.1f} MiB\n")


if __name__ == "__main__":
    main()
