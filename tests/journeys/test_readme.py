"""The README's example is run as it stands, and its commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    script = tmp_path / "example.py"
    script.write_text(block)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shape = re.compile(r"class \d, certified against any \d+ edge flips? \(influence, alpha 0.001, 1,000 samples, .*\)")
    assert shape.fullmatch(done.stdout.strip()), done.stdout
    assert [line.strip() for line in README.splitlines() if shape.fullmatch(line.strip())]


def test_the_commands_are_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"(?:^ {4}|`)make ([a-z]+)", README, re.M))
    assert {"reproduce", "test"} <= named <= targets


def test_every_page_it_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
