"""Importing the package is quick, imports nothing heavy, and offers every public name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import flipproof
from support.command_line import OWN_MODEL, write_graphs


def loaded_after(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_import_alone_loads_nothing_heavy() -> None:
    loaded = loaded_after("import flipproof")
    assert "flipproof" in loaded
    heavy = {"torch", "torch_geometric", "scipy", "numpy", "matplotlib", "networkx", "pandas", "ray", "rich", "typer"}
    heavy |= {"numba"}
    assert not loaded & heavy


@pytest.mark.parametrize(
    "code",
    [
        "flipproof.radius(0.99, flipproof.EdgeNoise(keep=0.9))",
        "flipproof.certify_counts([990, 10], flipproof.EdgeNoise(keep=0.9), method='votes')",
        "flipproof.Graph(3, [(0, 1)]).flipped([(1, 2)])",
        "flipproof.Votes",
    ],
)
def test_the_mathematics_needs_no_torch(code: str) -> None:
    loaded = loaded_after(f"import flipproof\n{code}")
    assert "numpy" in loaded
    assert not loaded & {"torch", "torch_geometric", "matplotlib", "networkx", "scipy.stats"}


def test_help_imports_nothing_that_computes() -> None:
    loaded = loaded_after(
        "import sys\nsys.argv = ['flipproof', '--help']\nfrom flipproof.cli import main\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code"
    )
    assert "typer" in loaded
    assert not loaded & {"numpy", "torch", "scipy", "pyarrow", "networkx", "matplotlib", "numba"}


@pytest.mark.parametrize("options", [["--keep", "0.8", "--samples", "1100"], ["--groups", "3"], ["--defence", "none"]])
def test_a_black_box_is_certified_without_torch(tmp_path: Path, options: list[str]) -> None:
    write_graphs(tmp_path / "graphs")
    (tmp_path / "own.py").write_text(OWN_MODEL.format(pause=0))
    certify = ["certify", "--model", "own:make", "--data", "graphs", *options, "--workers", "2", "--out", "run", "-q"]
    loaded = loaded_after(
        f"import os, sys\nos.chdir({str(tmp_path)!r})\nfrom flipproof.cli import main\n"
        f"for words in ({certify!r}, ['verify', 'run', '-q']):\n"
        "    sys.argv = ['flipproof', *words]\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        assert not ended.code, ended.code"
    )
    assert (tmp_path / "run" / "certificates.parquet").exists()
    assert {"numpy", "own"} <= loaded
    assert not loaded & {"torch", "torch_geometric", "matplotlib", "ray"}


def test_public_names() -> None:
    promised = {
        "EdgeNoise", "Graph", "Votes", "Certificate", "SmoothedClassifier", "InputError",
        "worst_case", "radius", "certified_grid", "certify_votes", "certify_counts", "certified_accuracy",
        "average_certified_radius", "datasets", "models", "train", "__version__",
    }  # fmt: skip
    assert promised <= set(flipproof.__all__)
    for name in flipproof.__all__:
        assert getattr(flipproof, name) is not None
    assert set(flipproof.__all__) <= set(dir(flipproof))


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'certfy'"):
        flipproof.certfy  # noqa: B018
    assert not hasattr(flipproof, "utils")


def test_errors_are_value_errors() -> None:
    assert issubclass(flipproof.InputError, ValueError)
