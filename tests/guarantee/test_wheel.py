"""The wheel in a clean environment, without extras: import, help, train, certify, report, predict."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.command_line import write_graphs

ROOT = Path(__file__).parents[2]
PYTHON = """
import flipproof as fp

graphs = fp.datasets.folder("graphs")
certificates = fp.load_run("run").certificates
assert len(fp.to_dataframe(certificates)) == len(certificates) > 0
assert fp.EdgeFlip(fp.EdgeNoise(keep=0.9), seed=0)(graphs[0].to_pyg()).num_nodes == graphs[0].num_nodes
"""


def run(*command: object, folder, code=0):
    """What a command prints, away from the repository."""
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*map(str, command)], cwd=folder, env=clean, capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.guarantee
def test_the_wheel_works_alone_in_a_clean_environment(tmp_path):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("flipproof-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "flipproof").rglob("*.*")}
    kept = {name for name in data if not name.endswith(".py") and "__pycache__" not in name}
    assert kept <= inside, "pages, styles, references"
    run(sys.executable, "-m", "venv", tmp_path / "clean", folder=tmp_path)
    python, flipproof = (tmp_path / "clean" / "bin" / name for name in ("python", "flipproof"))
    constraints = ROOT / "constraints.txt"
    # torch first, as the documentation advises
    for what in ("torch", wheel):
        run(python, "-m", "pip", "install", "--quiet", "-c", constraints, what, folder=tmp_path)
    printed = run(python, "-c", "import flipproof; print(flipproof.__file__)", folder=tmp_path)
    assert str(tmp_path / "clean") in printed
    write_graphs(tmp_path / "graphs")
    assert "Makes graph classifiers provably robust" in run(flipproof, "--help", folder=tmp_path)
    run(
        flipproof,
        *["train", "--data", "graphs", "--keep", "0.9", "--epochs", "2", "--out", "model", "-q"],
        folder=tmp_path,
    )
    run(flipproof, *["certify", "--model", "model", "--samples", "200", "--out", "run", "-q"], folder=tmp_path)
    run(flipproof, *["report", "run", "-q"], folder=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()
    assert "certified against" in run(
        flipproof, *["predict", "--model", "model", "--samples", "500", "graphs"], folder=tmp_path
    )
    run(python, "-c", PYTHON, folder=tmp_path)
    certify = ["certify", "--model", "model", "--samples", "200", "--out", "other", "--engine", "ray"]
    assert "pip install ray" in run(flipproof, *certify, folder=tmp_path, code=2)
