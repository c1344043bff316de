"""What a user does: train, certify, get killed, continue, export, have it audited. Real commands in real processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.command_line import OWN_MODEL, write_graphs

SLOW = ["certify", "--model", "own:make", "--data", "graphs", "--keep", "0.8", "--samples", "3000", "--part", "all"]


def flipproof(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flipproof", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def done(*arguments: str, cwd: Path) -> str:
    finished = flipproof(*arguments, cwd=cwd)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with graphs, a slow model, and one run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("user")
    write_graphs(folder / "graphs", count=4)
    (folder / "own.py").write_text(OWN_MODEL.format(pause=5e-5))
    done(*SLOW, "--out", "whole", cwd=folder)
    return folder


def killed_once(folder: Path, out: str, moment: float) -> bool:
    """Start the command and kill it so long after its first write; whether it was still running."""
    command = [sys.executable, "-m", "flipproof", *SLOW, "--out", out]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        lock, started = folder / out / ".lock", time.monotonic()
        while process.poll() is None and time.monotonic() - started < 60:
            if lock.exists() and lock.read_text() == str(process.pid):
                break
            time.sleep(0.002)
        time.sleep(moment)
        running = process.poll() is None
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return running


def blocks_done(folder: Path) -> int:
    """Blocks that are on disk, in whole files or in parts."""
    return 3 * len(list(folder.glob("votes/*.npz"))) + len(list(folder.glob("votes/*.part/*.json")))


def killed_and_continued(folder: Path, out: str, times: int, generator: random.Random) -> int:
    """Kill so often, continue to the end, compare with the uninterrupted run; how many kills hit a running process."""
    hits, before = 0, 0
    for _ in range(times):
        hits += killed_once(folder, out, generator.choice([0.0, 0.05, 0.4]) * generator.random())
        after = blocks_done(folder / out)
        assert after >= before, "a finished block was lost"
        before = after
    finished = flipproof(*SLOW, "--out", out, cwd=folder)
    assert finished.returncode == 0, finished.stderr
    assert "set aside" not in finished.stderr
    assert done("export", out, cwd=folder) == done("export", "whole", cwd=folder)
    tables = [(folder / run / "certificates.parquet").read_bytes() for run in ("whole", out)]
    assert tables[0] == tables[1]
    names = [sorted(path.name for path in (folder / run / "votes").iterdir()) for run in ("whole", out)]
    assert names[0] == names[1]  # no parts, no half-written files
    assert "verified: 4 certificates" in done("verify", out, cwd=folder)
    return hits


def test_killed_at_random_moments_and_continued(workplace: Path) -> None:
    assert killed_and_continued(workplace, "killed", 3, random.Random(time.time_ns())) >= 1


@pytest.mark.guarantee
def test_killed_at_many_random_moments_and_continued(workplace: Path) -> None:
    generator = random.Random(time.time_ns())
    hits = sum(killed_and_continued(workplace, f"killed-{number}", 6, generator) for number in range(5))
    assert hits >= 20


def test_ctrl_c_ends_with_the_command_to_continue(workplace: Path) -> None:
    command = [sys.executable, "-m", "flipproof", *SLOW, "--out", "stopped"]
    process = subprocess.Popen(
        command,
        cwd=workplace,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test run in the background ignores it
    )
    while process.poll() is None and not list((workplace / "stopped").glob("votes/*.part/*.json")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    last = err.splitlines()[-1]
    assert last.startswith(
        "flipproof: stopped; what is finished is kept. continue with: flipproof certify --model own:make"
    )
    assert "Traceback" not in err
    continued = flipproof(*SLOW, "--out", "stopped", cwd=workplace)
    assert continued.returncode == 0, continued.stderr
    assert done("export", "stopped", cwd=workplace) == done("export", "whole", cwd=workplace)


def test_two_processes_in_one_folder(workplace: Path) -> None:
    command = [sys.executable, "-m", "flipproof", *SLOW, "--out", "shared"]
    first = subprocess.Popen(command, cwd=workplace, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while first.poll() is None and not (workplace / "shared" / "votes").exists():
            time.sleep(0.01)
        os.kill(first.pid, signal.SIGSTOP)  # alive, and holding the folder
        second = flipproof(*SLOW, "--out", "shared", cwd=workplace)
        os.kill(first.pid, signal.SIGCONT)
        assert second.returncode == 2
        assert second.stderr == (
            f"flipproof: shared is in use by another process, number {first.pid} (wait until it has finished, or choose "
            "another folder)\n"
        )
        assert first.wait(60) == 0
    finally:
        first.kill()
        first.wait()


def test_train_and_certify_the_papers_data(tmp_path: Path) -> None:
    training = [
        "train",
        "--data",
        "topologies:48",
        "--model",
        "gcn",
        "--keep",
        "0.9",
        "--epochs",
        "3",
        "--out",
        "model",
    ]
    assert json.loads(done(*training, "--json", cwd=tmp_path))["graphs"] == {"train": 27, "validation": 5, "test": 16}
    certify = ["certify", "--model", "model", "--samples", "100", "--out", "run"]
    assert "certified accuracy of 16 test graphs" in done(*certify, cwd=tmp_path)
    assert "verified: 16" in done("verify", "run", cwd=tmp_path)
    assert len(done("export", "run", cwd=tmp_path).splitlines()) == 17


def test_help_answers_at_once(tmp_path: Path) -> None:
    """Half a second is asked for on an idle machine; processor time does not mind neighbours."""
    script = (
        "import sys, time\nsys.argv = ['flipproof', '--help']\nfrom flipproof.cli import main\n"
        "try:\n    main()\nfinally:\n"
        "    assert not {'torch', 'numpy', 'pyarrow', 'networkx'} & sys.modules.keys()\n"
        "    assert time.process_time() < 0.5, time.process_time()\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    for command in ("train", "certify", "export", "verify", "radius", "reproduce"):
        assert command in shown.stdout


@pytest.mark.parametrize("command", ["train", "certify", "export", "verify"])
def test_every_command_has_help_with_an_example(command: str, tmp_path: Path) -> None:
    assert f"flipproof {command}" in done(command, "--help", cwd=tmp_path).split("Example:")[1]
