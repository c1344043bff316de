"""The run folder: ``run.json`` beside the evidence. Everything else in it is derived and can be made again.

RUN/run.json              what was asked; written first
RUN/evidence.sqlite       a row per finished graph, and the line to beat
RUN/certificates.parquet, RUN/report.html, RUN/figures/   derived
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from flipproof.errors import InputError
from flipproof.runs import settings as run_settings
from flipproof.runs import store as run_store
from flipproof.runs.settings import RunSettings
from flipproof.runs.store import Store

__all__ = ["Run", "open_run", "written_run"]

_Settings = TypeVar("_Settings", bound=RunSettings)


class Run(Generic[_Settings]):
    """A run folder that is held, or read, by this process."""

    def __init__(self, folder: Path, settings: _Settings, store: Store) -> None:
        self.folder, self.settings, self.store = folder, settings, store

    def begin_again(self, settings: _Settings) -> None:
        """Forget all evidence, and record other settings with which it is made from now on."""
        self.store.clear()  # first: evidence without settings is asked again, and not taken for that of others
        (self.folder / run_settings.FILE).unlink()
        settings.write(self.folder)
        self.store.bind((self.folder / run_settings.FILE).read_text(encoding="utf-8"))
        self.settings = settings


@contextmanager
def written_run(folder: str | os.PathLike[str], settings: _Settings) -> Iterator[Run[_Settings]]:
    """Begin or continue a run, held for this process; refuses a folder of other files, and a run with other settings."""
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise InputError(f"--out must be a folder; {path} is a file (choose another name)")
    _refuse_foreign(path)
    if (path / run_settings.FILE).exists():
        settings.refuse_other(path, type(settings).read(path))  # even while another process is writing
    path.mkdir(parents=True, exist_ok=True)
    with Store(path / run_store.FILE, write=True) as store:
        made_with = store.asked()
        if made_with is not None:  # evidence outlives a run.json that was deleted, and knows one that was edited
            settings.refuse_other(path, type(settings).parsed(made_with, store.path))
        settings.write(path)
        store.bind((path / run_settings.FILE).read_text(encoding="utf-8"))
        for left in path.glob(".*.tmp"):  # of a process that was killed
            left.unlink(missing_ok=True)
        yield Run(path, settings, store)


@contextmanager
def open_run(folder: str | os.PathLike[str], kind: type[_Settings]) -> Iterator[Run[_Settings]]:
    """A run that is there already, to be read."""
    path = Path(folder)
    settings = kind.read(path)
    with Store(path / run_store.FILE, write=False) as store:
        yield Run(path, settings, store)


def _refuse_foreign(folder: Path) -> None:
    """Refuse a folder of somebody else's files; what a process killed before it wrote ``run.json`` left is none."""
    if not folder.is_dir() or (folder / run_settings.FILE).exists():
        return
    if any(not path.name.startswith(run_store.FILE) and path.suffix != ".tmp" for path in folder.iterdir()):
        raise InputError(
            f"{folder} holds files but no run.json: it is not a run folder (choose an empty or new folder)"
        )
