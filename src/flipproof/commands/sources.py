"""What the options of the commands name: a data set and its split, a model, features, a noise."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.datasets import Dataset, Split, folder, split, topologies, tu
from flipproof.datasets.folder import LABELS
from flipproof.errors import InputError
from flipproof.noise import EdgeNoise, checked_seed

if TYPE_CHECKING:
    from flipproof.models import SavedModel

__all__ = [
    "PARTS",
    "DataSource",
    "LoadedModel",
    "features_identity",
    "fingerprint",
    "load_features",
    "load_model",
    "load_noise",
    "model_data",
    "naming_the_graph",
    "optional_noise",
    "part_indices",
]

PARTS = ("test", "validation", "train", "all")


# ---- data -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DataSource:
    """A data set as the options name it, and how it is split.

    Attributes:
        data: ``topologies`` (``topologies:96`` for 96 graphs), a folder of graphs, or a TU name.
        root: Folder of the TU data sets.
        download: Fetch a TU data set that is not there.
        seed: Makes the topologies.
        split_seed, test, validation: Of the split; shares of the whole.
    """

    data: str
    root: str | None = None
    download: bool = False
    seed: int = 0
    split_seed: int = 0
    test: float = 1 / 3
    validation: float = 0.0

    def load(self) -> Dataset:
        """The graphs."""
        checked_seed(self.seed)
        kind, colon, count = self.data.partition(":")
        if kind == "topologies":
            if colon and not count.isdecimal():
                raise InputError(
                    f"--data topologies:COUNT needs a number of graphs; got {self.data!r} (for instance topologies:96)"
                )
            return topologies(int(count), seed=self.seed) if colon else topologies(seed=self.seed)
        path = self._folder
        if path is None:
            assert self.root is not None
            return tu(self.data, self.root, download=self.download)
        if (path / LABELS).is_file():
            return folder(path)
        if (path / f"{path.resolve().name}_A.txt").is_file():
            return tu(path.resolve().name, path.resolve().parent)
        what = f"is a folder without {LABELS}" if path.is_dir() else "is no folder here"
        raise InputError(
            f"--data must be topologies, a folder with {LABELS}, or a TU name; {path} {what}, and a TU name needs --root "
            "(for instance --root data)"
        )

    @property
    def _folder(self) -> Path | None:
        """The folder that ``data`` names; ``None`` for the topologies, and for a name that is to be looked up in ``root``."""
        path = Path(self.data).expanduser()
        looked_up = self.root is not None and path.name == self.data
        return None if looked_up or self.data.partition(":")[0] == "topologies" else path

    def split(self, graphs: Dataset) -> Split:
        """The parts to train on, to choose the epoch with, and to certify."""
        for option, share in (("--test", self.test), ("--validation", self.validation)):
            if not 0 <= share < 1 or (option == "--test" and share == 0):
                raise InputError(f"{option} must be a share of the graphs in (0, 1); got {share:g} (for instance 0.2)")
        return split(graphs, test=self.test, validation=self.validation, seed=self.split_seed)

    def metadata(self, graphs: Dataset) -> dict[str, Any]:
        """What a model folder remembers of its data; :func:`model_data` reads it."""
        return {
            "data": self.data if self._folder is None else str(self._folder.resolve()),
            "root": None if self.root is None else str(Path(self.root).expanduser().resolve()),
            "data_seed": self.seed,
            "split_seed": self.split_seed,
            "test": self.test,
            "validation": self.validation,
            "data_sha256": fingerprint(graphs),
            "class_names": list(graphs.class_names),
        }


def model_data(
    saved: SavedModel | None,
    *,
    data: str | None,
    root: str | None,
    download: bool,
    data_seed: int | None,
    split_seed: int | None,
) -> tuple[DataSource, Dataset]:
    """The data of a model folder, with what the options override; refused if they have changed since the training.

    So a graph that the model was trained on never becomes a test graph by accident: only an explicit ``--data``,
    ``--data-seed`` or ``--split-seed`` gives another split than the stored one.
    """
    stored = {} if saved is None else saved.metadata
    if data is None and not isinstance(stored.get("data"), str):
        raise InputError("the model does not say which data it belongs to (give --data)")
    same = data is None or stored.get("data") in (data, str(Path(data).expanduser().resolve()))
    source = DataSource(
        data=str(stored["data"]) if data is None else data,
        root=(stored.get("root") if same else None) if root is None else root,
        download=download,
        seed=int(stored.get("data_seed", 0)) if data_seed is None else data_seed,
        split_seed=int(stored.get("split_seed", 0)) if split_seed is None else split_seed,
        test=float(stored.get("test", 1 / 3)),
        validation=float(stored.get("validation", 0.0)),
    )
    graphs = source.load()
    expected = stored.get("data_sha256")
    if same and data_seed is None and expected is not None and fingerprint(graphs) != expected:
        raise InputError(
            f"the data {source.data} are not those that the model was trained on: their hash has changed, so that training "
            "graphs could be taken for test graphs (restore the data, or train again)"
        )
    return source, graphs


def fingerprint(graphs: Dataset) -> str:
    """Hash of all graphs, their features, labels and class names; independent of machine and path."""
    digest = hashlib.sha256(json.dumps([len(graphs), list(graphs.class_names)]).encode())
    for graph in graphs:
        digest.update(f"{graph.topology} {graph.label}".encode())
        if graph.node_features is not None:
            features = graph.node_features
            digest.update(f"{features.shape} {features.dtype.str}".encode())
            digest.update(features.tobytes())
    return digest.hexdigest()


def part_indices(parts: Split, part: str, limit: int | None) -> list[int]:
    """Positions in the data set of the graphs to certify."""
    if part not in PARTS:
        raise InputError(f"--part must be one of {', '.join(PARTS)}; got {part!r} (test is the default)")
    chosen = range(len(parts.dataset)) if part == "all" else getattr(parts, f"{part}_indices").tolist()
    indices = [int(index) for index in chosen][:limit]
    if not indices:
        raise InputError(f"--part {part} holds no graph (choose another part, or train with --validation above 0)")
    return indices


# ---- models -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to be asked.

    Attributes:
        model: A torch module in evaluation mode, or a callable from graphs to labels.
        name: For tables: the network's name, or what the user typed.
        identity: Hash of the weights (and of the user's code): another model has another.
        saved: What its folder says; ``None`` for a user's own.
    """

    model: Any
    name: str
    identity: str
    saved: SavedModel | None


def load_model(name: str) -> LoadedModel:
    """A folder that ``train`` wrote, or ``package.module:factory`` for a user's own model."""
    path = Path(name).expanduser()
    if ":" in name and not path.is_dir():
        return _own_model(name)
    from flipproof import models

    if path.is_dir():
        saved = models.load_metadata(path)
        return LoadedModel(models.load(path), str(saved.config["name"]), saved.weights_hash, saved)
    if name in (*models.NAMES, models.WLSVM.name):
        raise InputError(
            f"--model {name} is a model without weights (train it first: flipproof train --model {name} ... --out M, "
            "then --model M)"
        )
    raise InputError(
        f"--model must be a folder that train wrote, or package.module:factory; {name} is neither (check the path)"
    )


def _own_model(name: str) -> LoadedModel:
    factory, source = _imported(name, "--model")
    try:
        model = factory()
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"--model {name}: the factory failed with {_reason(error)} (it is called without arguments)"
        ) from error
    if model is None or isinstance(model, type):
        raise InputError(f"--model {name}: the factory must return a model; got {model!r} (return an instance)")
    return LoadedModel(model, name, _identity(model, source), None)


def load_features(name: str | None) -> Any:
    """A name as in :func:`flipproof.classifiers.features.as_features`, or ``package.module:function`` for a user's own.

    ``None`` stays: the graphs' own features, and a black box then needs no torch.
    """
    if name is None:
        return None
    from flipproof.classifiers.features import as_features

    known = ":" not in name or "+" in name or name.startswith("one-hot-degree:")
    return as_features(name if known else _imported(name, "--features")[0])


def features_identity(name: str | None) -> str:
    """What tells one features option from another: the name, and for a user's own function a hash of its file."""
    hook = load_features(name)
    if hook is None or hook.spec is not None:
        return "own" if hook is None else str(hook.spec)
    return f"{name} sha256:{hashlib.sha256(_imported(str(name), '--features')[1]).hexdigest()}"


def _imported(name: str, option: str) -> tuple[Any, bytes]:
    """The object that ``package.module:attribute`` names, and the source of its module."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise InputError(f"{option} must read package.module:name; got {name!r} (for instance mymodels:make)")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise InputError(
            f"{option} {name}: importing {module_name} failed with {_reason(error)} (run it from the folder that holds it)"
        ) from error
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InputError(f"{option} {name}: {module_name} has no callable {attribute} (check the name after the colon)")
    file = getattr(module, "__file__", None)
    return found, b"" if file is None else Path(file).read_bytes()


def _identity(model: Any, source: bytes) -> str:
    digest = hashlib.sha256(f"{type(model).__module__}.{type(model).__qualname__}".encode() + source)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        model.eval()
        for key, value in sorted(model.state_dict().items()):
            digest.update(f"{key} {tuple(value.shape)} {value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


@contextmanager
def naming_the_graph(index: int, *, own_model: bool, asked: str = "noisy copies") -> Iterator[None]:
    """Whatever a user's own model raises becomes one sentence; a fault of flipproof's own stays what it is."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        if not own_model:
            raise
        raise InputError(
            f"the model failed on {asked} of graph {index} with {_reason(error)} (correct it, and run again)"
        ) from error


# ---- noise ------------------------------------------------------------------------------------------------------------


def optional_noise(keep: float | None, add: float | None, remove: float | None) -> EdgeNoise | None:
    """The noise that the options ask for; ``None`` if none of them is given."""
    if keep is None and add is None and remove is None:
        return None
    return EdgeNoise(keep=keep, add=add, remove=remove)


def load_noise(
    saved: SavedModel | None, keep: float | None, add: float | None, remove: float | None, *, edge_blind: bool = False
) -> EdgeNoise:
    """The noise of the options, else the one the model was trained under."""
    asked = optional_noise(keep, add, remove)
    if asked is not None:
        return asked
    if saved is not None and saved.noise is not None:
        return saved.noise
    if edge_blind:
        return EdgeNoise(add=0, remove=0)
    raise InputError(
        "the model was not trained under noise, so the noise must be given (--keep 0.9, or --add and --remove)"
    )
