"""A pipe that is closed early (``| head``) is no failure, and does not end the work."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

WORK = """
import sys, time
from flipproof.progress import note, progress
time.sleep(0.5)
with progress("working", 3, unit="steps") as advance:
    for step in range(3):
        note(f"step {step}")
        advance(1)
open(sys.argv[1], "w").write("done")
"""


def unread(*words: object) -> int:
    """The exit code of a Python command whose output nobody reads."""
    command = shlex.join([sys.executable, *map(str, words)])
    script = f"set -o pipefail; {command} 2>&1 | true"
    return subprocess.run(["bash", "-c", script], check=False, capture_output=True).returncode


@pytest.mark.parametrize("words", ["certify --help", "radius --keep 0.9 --p-lower 0.99", "verify nothing"])
def test_nobody_reads_the_output(words: str) -> None:
    assert unread("-m", "flipproof", *words.split()) == (2 if "verify" in words else 0)


def test_the_work_goes_on(tmp_path: Path) -> None:
    assert unread("-c", WORK, tmp_path / "result") == 0
    assert (tmp_path / "result").read_text() == "done"
