"""The run folder: what was asked, and the votes of every graph. Everything else can be derived from it again.

    RUN/run.json            what was asked; written first
    RUN/votes/00000.npz     one file a graph, written whole and renamed into place; a graph with a file is done
    RUN/votes/00000.part/   finished blocks of 1,024 samples of a graph under way
    RUN/.lock               held by the process that writes

Killing the process at any moment loses at most the block under way. Files that are cut off or belong elsewhere are set aside
and made again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from flipproof.errors import InputError
from flipproof.files import write_bytes, write_json, write_text
from flipproof.graphs import Graph
from flipproof.grouping import EdgeGroups, GroupVotes
from flipproof.noise import BLOCK, STREAM_VERSION, EdgeNoise
from flipproof.votes import Block, Votes

__all__ = ["Parts", "Run", "locked", "write_bytes", "write_json", "write_text"]

_RECORDED = ("flipproof", "numpy", "scipy", "torch")
_LOCK = ".lock"
_OURS = re.compile(r"\d{5,}\.(npz|part)|.*\.broken|.*\.tmp")


@contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a run folder for this process; a second process is refused. A process that dies lets go of it.

    (The operating system's lock, so that none can go stale. On Windows, which has no such lock, nothing is held.)
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file; expected a run folder (choose another name)")
    _refuse_foreign(path)
    path.mkdir(parents=True, exist_ok=True)
    with (path / _LOCK).open("a+") as file:
        if not _try_lock(file):
            file.seek(0)
            owner = file.read().strip()
            raise InputError(
                f"{path} is in use by another process{f', number {owner}' * bool(owner)} (wait until it has finished, or "
                "choose another folder)"
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        _held.add(file.fileno())
        try:
            yield
        finally:
            _held.discard(file.fileno())
        file.truncate(0)


_held = set[int]()


def _let_go() -> None:
    """In a forked worker: what it inherited would keep the folder locked after its parent has died."""
    while _held:
        os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


def _try_lock(file: IO[str]) -> bool:
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Run:
    """A folder of votes for the graphs of one data set, one model and one defence.

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
            _refuse_foreign(self.folder)
            write_json(description, {"settings": wanted, "versions": _versions()})
        self.settings: dict[str, Any] = wanted

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Run:
        """A run that is there already, whatever was asked."""
        path = Path(folder)
        if not (path / "run.json").is_file():
            what = "it has no run.json" if path.is_dir() else "there is no such folder"
            raise InputError(f"{path} is not a run folder: {what} (give the --out of flipproof certify)")
        run = cls.__new__(cls)
        run.folder, run.settings = path, _read_settings(path / "run.json")
        return run

    def path(self, index: int) -> Path:
        """The file of one graph's votes."""
        return self.folder / "votes" / f"{index:05d}.npz"

    def save(self, index: int, votes: Votes | GroupVotes) -> None:
        """Keep one graph's votes: the graph is then done."""
        self.path(index).parent.mkdir(exist_ok=True)
        votes.save(self.path(index))
        shutil.rmtree(self._part(index), ignore_errors=True)

    def load(self, index: int) -> Votes:
        """One graph's votes."""
        return Votes.load(self.path(index))

    def load_group_votes(self, index: int) -> GroupVotes:
        """One graph's votes on its sub-graphs, in a run of the voting defence."""
        return GroupVotes.load(self.path(index))

    def pending(
        self,
        graphs: Sequence[Graph] | Mapping[int, Graph],
        *,
        noise: EdgeNoise,
        samples: int | Sequence[int],
        seed: int,
    ) -> tuple[list[int], list[str]]:
        """Graphs without a whole file of votes, and what was found wrong with the files that are set aside for it.

        Args:
            graphs: In order, or by the number that their files bear.
            noise, seed: What a graph's votes must have been cast with.
            samples: How many votes a graph must have; several numbers where sampling may end early.
        """
        numbers = [samples] if isinstance(samples, int) else samples

        def refuse_other(index: int, graph: Graph) -> None:
            votes = self.load(index)
            found = (votes.graph.topology, votes.noise, votes.seed)
            if found != (graph.topology, noise, seed) or len(votes) not in numbers:
                raise InputError(f"{self.path(index)} belongs to another graph, noise, seed or number of samples")

        return self._pending(graphs, refuse_other)

    def pending_groups(
        self, graphs: Mapping[int, Graph], *, groups: EdgeGroups, num_classes: int
    ) -> tuple[list[int], list[str]]:
        """As :meth:`pending`, for a run of the voting defence."""

        def refuse_other(index: int, graph: Graph) -> None:
            votes = self.load_group_votes(index)
            if (votes.graph.topology, votes.groups, votes.num_classes) != (graph.topology, groups, num_classes):
                raise InputError(f"{self.path(index)} belongs to another graph, hash or number of groups")

        return self._pending(graphs, refuse_other)

    def _pending(
        self, graphs: Sequence[Graph] | Mapping[int, Graph], refuse_other: Callable[[int, Graph], None]
    ) -> tuple[list[int], list[str]]:
        missing, complaints = [], []
        for index, graph in graphs.items() if isinstance(graphs, Mapping) else enumerate(graphs):
            path = self.path(index)
            if not path.exists():
                missing.append(index)
                continue
            try:
                refuse_other(index, graph)
            except (InputError, IsADirectoryError) as error:
                complaints.append(f"{error}; {_set_aside(path)}, sampled again")
                missing.append(index)
            else:
                shutil.rmtree(self._part(index), ignore_errors=True)  # of a process killed before it could
        return missing, complaints

    def tidy(self) -> list[str]:
        """Remove what a killed process left half-written; names files that are not the run's, which stay. Needs the lock."""
        strangers = []
        for path in sorted((self.folder / "votes").glob("*")):
            if path.suffix == ".tmp":
                path.unlink(missing_ok=True)
            elif not _OURS.fullmatch(path.name):
                strangers.append(f"{path} is not a file of this run; left alone")
        for path in self.folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)
        return strangers

    def parts(
        self,
        graphs: Mapping[int, Graph],
        *,
        noise: EdgeNoise,
        samples: int,
        seed: int,
        complain: Callable[[str], None],
    ) -> Parts:
        """The finished blocks of graphs under way.

        Args:
            graphs: By the number that their files bear.
            noise, samples, seed: What the votes are cast with; ``samples`` is the most that a graph gets.
            complain: Called with a sentence for each file that is set aside.
        """
        asked = {
            "noise": [noise.add_threshold, noise.remove_threshold],
            "samples": samples,
            "seed": seed,
            "stream_version": STREAM_VERSION,
        }
        return Parts({index: self._part(index) for index in graphs}, graphs, asked, complain)

    def _part(self, index: int) -> Path:
        return self.path(index).with_suffix(".part")


class Parts:
    """The folders of finished blocks of graphs under way, one a graph; see :meth:`Run.parts`."""

    def __init__(
        self,
        folders: Mapping[int, Path],
        graphs: Mapping[int, Graph],
        asked: Mapping[str, Any],
        complain: Callable[[str], None],
    ) -> None:
        self._folders, self._graphs, self._asked, self._complain = folders, graphs, asked, complain

    def read(self, index: int) -> dict[int, Block]:
        """The blocks of a graph that are there and whole, by their first sample."""
        samples, found = self._asked["samples"], {}
        for start in range(0, samples, BLOCK) if self._folders[index].is_dir() else ():
            size = min(BLOCK, samples - start)
            block = _read_block(self._path(index, start), self._description(index, start), size, self._complain)
            if block is not None:
                found[start] = block
        return found

    def keep(self, index: int, start: int, block: Block) -> None:
        """Write a block, so that a killed process does not lose it."""
        _write_block(self._path(index, start), self._description(index, start), block)

    def _path(self, index: int, start: int) -> Path:
        return self._folders[index] / f"{start // BLOCK:05d}.json"

    def _description(self, index: int, start: int) -> dict[str, Any]:
        return {"graph": self._graphs[index].topology, **self._asked, "start": start}


def _write_block(path: Path, description: Mapping[str, Any], block: Block) -> None:
    labels, checksum = block
    content = {
        **description,
        "checksum": checksum,
        "type": labels.dtype.str,
        "labels": base64.b64encode(labels.tobytes()).decode(),
    }
    # a process that is killed does not lose it; after a power cut the hash tells, and the block is sampled again
    write_bytes(path, json.dumps(content | {"sha256": _hash(content)}).encode(), durable=False)


def _read_block(path: Path, description: Mapping[str, Any], size: int, complain: Callable[[str], None]) -> Block | None:
    try:
        content = json.loads(path.read_bytes())
        digest = content.pop("sha256")
        if digest != _hash(content):
            raise ValueError("its hash is not the stored one")
        if any(content[key] != value for key, value in description.items()):
            raise ValueError("it belongs to another graph, noise, seed or number of samples")
        labels = np.frombuffer(base64.b64decode(content["labels"]), dtype=np.dtype(content["type"]))
        if len(labels) != size:
            raise ValueError(f"it holds {len(labels)} votes, not {size}")
        return labels, str(content["checksum"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, IsADirectoryError) as error:
        complain(f"{path} is not a whole block of votes: {error}; {_set_aside(path)}, sampled again")
        return None


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _set_aside(path: Path) -> str:
    """Rename a file that cannot be used; says so."""
    target = path.with_name(f"{path.stem}.broken")
    number = 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.stem}-{number}.broken")
    path.replace(target)
    return f"set aside as {target.name}"


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder of somebody else's files; what a process killed before it wrote ``run.json`` left is none."""
    if not folder.is_dir() or (folder / "run.json").exists():
        return
    if any(path.name != _LOCK and path.suffix != ".tmp" for path in folder.iterdir()):
        raise InputError(
            f"{folder} holds files but no run.json: it is not a run folder (choose an empty or new folder)"
        )


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
    for key in [*wanted, *(found.keys() - wanted.keys())]:
        if found.get(key) != wanted.get(key):
            raise InputError(
                f"{folder} holds a run with {key} = {_short(found.get(key))}; asked for {key} = {_short(wanted.get(key))} "
                "(choose another folder, or ask for the same)"
            )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for package in _RECORDED:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
        found.setdefault(package, None)
    return found
