"""The voting defence in a real process that is killed, continued and audited."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from support.command_line import OWN_MODEL, write_graphs

COMMAND = [sys.executable, "-m", "flipproof"]
CERTIFY = ["certify", "--model", "own:make", "--data", "graphs", "--groups", "5", "--part", "all"]


def done(folder: Path, *arguments: str) -> str:
    finished = subprocess.run([*COMMAND, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_killed_and_continued(tmp_path: Path) -> None:
    write_graphs(tmp_path / "graphs", count=12)
    (tmp_path / "own.py").write_text(OWN_MODEL.format(pause=0.02))  # a tenth of a second a graph
    done(tmp_path, *CERTIFY, "--out", "whole")
    with subprocess.Popen([*COMMAND, *CERTIFY, "--out", "killed"], cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and len(list((tmp_path / "killed").glob("votes/*.npz"))) < 2:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "votes").glob("*.npz")}
    assert 2 <= len(before) < 12
    assert not (tmp_path / "killed" / "certificates.parquet").exists()
    done(tmp_path, *CERTIFY, "--out", "killed")
    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "killed" / "votes").iterdir()}
    assert len(after) == 12
    assert before.items() <= after.items()
    tables = [(tmp_path / run / "certificates.parquet").read_bytes() for run in ("whole", "killed")]
    assert tables[0] == tables[1]
    assert done(tmp_path, "verify", "killed") == "verified: 12 certificates follow from their votes\n"
