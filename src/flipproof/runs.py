"""The run folder: what was asked, and the votes of every graph. Everything else can be derived from it again.

    RUN/run.json            what was asked; written first
    RUN/votes/00000.npz     one file a graph, written whole and renamed into place; a graph with a file is done

Killing the process at any moment loses at most the graph under way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise import STREAM_VERSION, EdgeNoise
from flipproof.votes import Votes

__all__ = ["Run", "write_json", "write_text"]

_RECORDED = ("flipproof", "numpy", "scipy", "torch")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write readable JSON, whole or not at all."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


class Run:
    """A folder of votes for the graphs of one data set, one model and one noise.

    Args:
        folder: Made if it does not exist.
        settings: What was asked, as plain JSON. A folder that holds a run with other settings is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        wanted = json.loads(json.dumps({**settings, "stream_version": STREAM_VERSION}))
        description = self.folder / "run.json"
        if description.exists():
            _refuse_difference(self.folder, _read_settings(description), wanted)
        else:
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise InputError(
                    f"{self.folder} holds files but no run.json: it is not a run folder (choose an empty or new folder)"
                )
            write_json(description, {"settings": wanted, "versions": _versions()})
        self.settings: dict[str, Any] = wanted

    def path(self, index: int) -> Path:
        """The file of one graph's votes."""
        return self.folder / "votes" / f"{index:05d}.npz"

    def save(self, index: int, votes: Votes) -> None:
        """Keep one graph's votes: the graph is then done."""
        self.path(index).parent.mkdir(exist_ok=True)
        votes.save(self.path(index))

    def load(self, index: int) -> Votes:
        """One graph's votes."""
        return Votes.load(self.path(index))

    def pending(
        self, graphs: Sequence[Graph], *, noise: EdgeNoise, samples: int, seed: int
    ) -> tuple[list[int], list[str]]:
        """Graphs without a whole file of votes, and what was found wrong with the files that are set aside for it."""
        missing, complaints = [], []
        for index, graph in enumerate(graphs):
            path = self.path(index)
            if not path.exists():
                missing.append(index)
                continue
            try:
                votes = self.load(index)
                if (votes.graph.topology, votes.noise, len(votes), votes.seed) != (
                    graph.topology,
                    noise,
                    samples,
                    seed,
                ):
                    raise InputError(f"{path} belongs to another graph, noise, seed or number of samples")
            except InputError as error:
                path.replace(path.with_suffix(".broken"))
                complaints.append(f"{error}; set aside as {path.with_suffix('.broken').name}, sampled again")
                missing.append(index)
        return missing, complaints


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read as a run's settings: {error} (choose another folder, or delete it)"
        ) from error
    if not isinstance(settings, dict):
        raise InputError(f"{path} does not hold a run's settings (choose another folder, or delete it)")
    return settings


def _refuse_difference(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for key in sorted(found.keys() | wanted.keys()):
        if found.get(key) != wanted.get(key):
            raise InputError(
                f"{folder} holds a run with {key} = {found.get(key)!r}; asked for {key} = {wanted.get(key)!r} "
                "(choose another folder, or ask for the same)"
            )


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in _RECORDED:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found
