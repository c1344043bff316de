"""Models as they are named and stored: built from a config, saved in a folder, or a user's ``package.module:factory``.

A folder holds config.json and weights.safetensors: no pickle, so that loading runs no code. Torch is imported where it is needed.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from types import CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from flipproof.classifiers import is_torch_module
from flipproof.datasets.sources import checked_task
from flipproof.errors import InputError
from flipproof.files import write_folder

if TYPE_CHECKING:
    from flipproof.models.network import NamedNetwork

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_OPAQUE = (ModuleType, type, list, dict, set)
_FORMAT, _VERSION = "flipproof model", 1
_CONFIG, _WEIGHTS = "config.json", "weights.safetensors"
_PYG = ("graphsage", "gat")
_CLASSES = {"gcn": "GCN", "gin": "GIN", **dict.fromkeys(_PYG, "PyGNetwork"), "local": "Local", "node-gcn": "NodeGCN"}

NAMES = tuple(_CLASSES)  # that build knows


@dataclass(frozen=True)
class SavedModel:
    """The description that a model folder holds."""

    config: dict[str, Any]  # what build makes the network of
    metadata: dict[str, Any]  # as passed to save
    weights_hash: str  # SHA-256 of the weights file, the model's identity


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model that is ready for use."""

    model: Any
    name: str  # for tables
    identity: str  # hash of its weights and code
    saved: SavedModel | None
    task: str = "graphs"  # or nodes: what it classifies

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {} if self.saved is None else self.saved.metadata

    def features(self, name: str | None) -> str | None:
        """The name of the node features: the one that the user chose, else that of the training."""
        stored = self.metadata.get("features")
        return name or (stored if isinstance(stored, str) else None)


def build(config: Mapping[str, Any], *, seed: int | None = None) -> NamedNetwork:
    """The network that a config describes, with fresh weights from the seed: ``name`` (one of :data:`NAMES`) and the
    constructor's arguments.

    >>> build({"name": "gcn", "in_features": 1, "num_classes": 8, "hidden": 16}).config["hidden"]
    16
    """
    from flipproof import models

    if not isinstance(config, Mapping) or not isinstance(config.get("name"), str):
        raise InputError(f"config must be a mapping with a name, one of {', '.join(NAMES)}; got {config!r}")
    name = config["name"]
    if name not in _CLASSES:
        raise InputError(f"unknown network {name!r} (flipproof has {', '.join(NAMES)})")
    arguments = {key: value for key, value in config.items() if key != "name" or name in _PYG}
    try:
        network: NamedNetwork = getattr(models, _CLASSES[name])(**arguments, seed=seed)
    except TypeError as error:
        raise InputError(f"config of {name} does not fit: {error} (compare {name}'s documentation)") from error
    return network


def from_factory(factory: Callable[..., Any], *, in_features: int, num_classes: int, seed: int) -> Any:
    """A fresh network from a user's factory, with torch's generator set to the seed.

    The factory is told ``in_features`` and ``num_classes`` if it takes arguments of these names.
    """
    import torch

    taken = inspect.signature(factory).parameters
    sizes = {"in_features": in_features, "num_classes": num_classes}
    torch.manual_seed(seed)
    with _told("the factory of the model failed", "it is called with in_features and num_classes, if it takes them"):
        model = factory(**{name: size for name, size in sizes.items() if name in taken})
    if not is_torch_module(model):
        raise InputError(f"the factory must return a torch module; got {type(model).__name__} (return an instance)")
    model.eval()
    return model


def load_model(name: str, factory: Callable[..., Any] | None = None, *, task: str | None = None) -> LoadedModel:
    """A folder that ``train`` wrote, or ``package.module:factory`` for a user's model, which classifies what ``task`` says."""
    path, task = Path(name).expanduser(), None if task is None else checked_task(task)
    if path.is_dir():
        saved = load_metadata(path)
        stored = str(saved.metadata.get("task", "graphs"))
        if task not in (None, stored):
            raise InputError(
                f"--task {task} needs a model for {task}; {name} was trained for {stored} (leave --task out)"
            )
        return LoadedModel(load(path, factory), str(saved.config["name"]), saved.weights_hash, saved, stored)
    if name in (*NAMES, "edge-blind"):
        remedy = f"train it first: flipproof train --model {name} ... --out M, then --model M"
        raise InputError(f"--model {name} is a model without weights ({remedy})")
    if ":" not in name:
        expected = "a folder that train wrote, or package.module:factory"
        raise InputError(f"--model must be {expected}; {name} is neither (check the path)")
    factory, source = _imported(name, "--model")
    with _told(f"--model {name}: the factory failed", "it is called without arguments"):
        model = factory()
    if model is None or isinstance(model, type):
        raise InputError(f"--model {name}: the factory must return a model; got {model!r} (return an instance)")
    if is_torch_module(model):
        model.eval()
    return LoadedModel(model, name, model_identity(model, source), None, task or "graphs")


def load_features(name: str | None) -> Any:
    """A name as in :func:`flipproof.classifiers.features.as_features`, or ``package.module:function``; ``None`` stays."""
    if name is None:
        return None
    from flipproof.classifiers.features import as_features

    known = ":" not in name or "+" in name or name.startswith("one-hot-degree:")
    return as_features(name if known else _imported(name, "--features")[0])


def _imported(name: str, option: str) -> tuple[Any, bytes]:
    """The object that ``package.module:attribute`` names, and the source of its module."""
    module_name, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise InputError(f"{option} must read package.module:name; got {name!r} (for instance mymodels:make)")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with _told(f"{option} {name}: importing {module_name} failed", "run it from the folder that holds it"):
        module = importlib.import_module(module_name)
    value = reduce(lambda holder, part: getattr(holder, part, None), attribute.split("."), cast(Any, module))
    if not callable(value):
        raise InputError(f"{option} {name}: {module_name} has no callable {attribute} (check the name after the colon)")
    return value, _source(module)


@contextmanager
def _told(what: str, remedy: str) -> Iterator[None]:
    """Turn an error of the user's code into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        raise InputError(f"{what} with {reason} ({remedy})") from error


def save(
    model: Any,
    folder: str | os.PathLike[str],
    *,
    factory: Callable[..., Any] | None = None,
    defence: Mapping[str, Any] | None = None,
    features: Any = None,
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a model to a folder, whole or not at all; an existing model folder is replaced.

    Args:
        model: One of flipproof's own models, or with ``factory`` a network of your own, of which the weights are written.
        folder: Where to.
        factory: Makes the network of your own, and must be importable by its name: see :func:`from_factory`.
        defence: The defence that the model is for, by its ``name`` with its settings, as in a run folder.
        features: The node features that the model takes: a hook, or its name.
        metadata: What else should be remembered, as JSON: ``data``, ``data_seed`` and ``split_seed`` are read by ``certify``.
    """
    told = {"defence": defence, "features": getattr(features, "spec", features)}
    metadata = {**{name: value for name, value in told.items() if value is not None}, **metadata}
    from flipproof.models import NodeStatistics
    from flipproof.models.network import NamedNetwork

    if factory is not None:
        name = f"{factory.__module__}:{getattr(factory, '__qualname__', type(factory).__qualname__)}"
        config = {"name": name, "in_features": metadata.get("in_features", 0), "num_classes": metadata["num_classes"]}
    elif isinstance(model, (NamedNetwork, NodeStatistics)):
        config = model.config
    else:
        raise InputError(
            f"only flipproof's own networks can be saved; got {type(model).__name__} (save another module's state_dict "
            "with safetensors yourself)"
        )
    folder = Path(folder)
    if folder.exists() and _description(folder).get("format") != _FORMAT:
        raise InputError(f"{folder} exists and is not a model folder (choose another name, or remove it)")
    weights = _packed_weights(model)
    description = {"format": _FORMAT, "version": _VERSION, "model": config}
    description |= {"weights_sha256": hashlib.sha256(weights).hexdigest(), "metadata": metadata}
    try:
        text = json.dumps(description, indent=2, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"metadata must be plain JSON: numbers, texts, lists; {error} (convert it)") from error
    write_folder(folder, {_CONFIG: text.encode(), _WEIGHTS: weights})


def load(folder: str | os.PathLike[str], factory: Callable[..., Any] | None = None) -> Any:
    """What :func:`save` wrote: a network in evaluation mode, or a fitted model. See :func:`load_metadata` for the rest.

    A user's network is made by the factory that was stored with it, which must be importable, or by the one given here.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    from flipproof.models import NodeStatistics

    folder = Path(folder)
    saved, weights = _read(folder)
    name = str(saved.config.get("name"))
    if ":" in name:
        sizes = {size: int(saved.config[size]) for size in ("in_features", "num_classes")}
        model: Any = from_factory(factory or _imported(name, "the model's factory")[0], **sizes, seed=0)
    elif name == NodeStatistics.name:
        model = NodeStatistics(saved.config.get("num_classes", 0))
    else:
        model = build(saved.config).eval()
    try:
        model.load_state_dict(load_tensors(weights))
    except (SafetensorError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"the weights in {folder} do not fit its config: {reason} (train again)") from error
    return model


def load_metadata(folder: str | os.PathLike[str]) -> SavedModel:
    """The description that a model folder holds; also checks that the weights are whole."""
    return _read(Path(folder))[0]


def _packed_weights(model: Any) -> bytes:
    from safetensors.torch import save as save_tensors

    return save_tensors({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()})


def _read(folder: Path) -> tuple[SavedModel, bytes]:
    description = _description(folder)
    config, metadata, version = (description.get(key) for key in ("model", "metadata", "version"))
    if description.get("format") != _FORMAT:
        why = f"it has no {_CONFIG} of flipproof's" if folder.is_dir() else "there is no such folder"
        raise InputError(f"{folder} is not a model folder: {why} (give one that save or train wrote)")
    if version != _VERSION:
        raise InputError(f"{folder} has version {version} of the model format, not {_VERSION} (use its own flipproof)")
    try:
        weights = (folder / _WEIGHTS).read_bytes()
    except OSError as error:
        raise InputError(f"{folder} has no readable {_WEIGHTS}: {error.strerror} (train or copy it again)") from error
    digest = hashlib.sha256(weights).hexdigest()
    if digest != description.get("weights_sha256"):
        raise InputError(f"{folder / _WEIGHTS} is cut off or altered: its hash is not the stored one (copy it again)")
    if not isinstance(config, dict) or not isinstance(metadata, dict):
        raise InputError(f"{folder / _CONFIG} lacks the entries model and metadata (train or copy it again)")
    return SavedModel(config, metadata, digest), weights


def _description(folder: Path) -> dict[str, Any]:
    try:
        content = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def hook_identity(hook: Any, name: str | None = None) -> str:
    """What tells node features from others: their spec, and for a user's own function its name and a hash."""
    if hook is None or hook.spec is not None:
        return "own" if hook is None else str(hook.spec)
    if hasattr(hook, "parts"):
        return "+".join(map(hook_identity, hook.parts))
    name = name or getattr(hook.function, "__qualname__", None)
    name = name or repr(hook.function).partition(" object at ")[0].lstrip("<")
    return f"{name} sha256:{model_identity(hook.function)}"


def model_identity(model: Any, source: bytes | None = None) -> str:
    """Hash of a model: of the weights of one of ours, as its folder has it; else of the weights and the user's code, by default
    that of the file in which the model's class or function is defined. A function's code counts with all that it reads, an
    object's class with its attributes. Lists, dictionaries and sets do not: what a model notes down makes it no other one.
    """
    kind = type(model) if is_torch_module(model) or not hasattr(model, "__qualname__") else model
    if kind.__module__.startswith("flipproof.models."):
        return hashlib.sha256(_packed_weights(model)).hexdigest()
    source = _source(sys.modules.get(kind.__module__)) if source is None else source
    # the class of a notebook has no file that its source would be in
    methods = {} if isinstance(model, FunctionType) else vars(type(model))
    written = {name: getattr(value, "__func__", value) for name, value in methods.items() if name != "__doc__"}
    kept = sorted((name, value) for name, value in written.items() if isinstance(value, (FunctionType, *_PLAIN)))
    home = getattr(model.func if isinstance(model, partial) else model, "__module__", "")
    content = b"".join(_content((model, *kept), home, {}))
    return hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}".encode() + source + content).hexdigest()


def _content(value: Any, home: str, seen: dict[int, Any]) -> Iterator[bytes]:
    """Everything that makes up a value, once; global variables are those that functions of the module ``home`` read."""
    yield f"<{type(value).__qualname__}>".encode()
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif isinstance(value, frozenset):
        yield from sorted(b"".join(_content(part, home, seen)) for part in value)
    elif isinstance(value, tuple):
        for part in value:
            yield from _content(part, home, seen)
    elif not isinstance(value, _OPAQUE) and id(value) not in seen:
        seen[id(value)] = value
        yield from _content(_parts(value, home), home, seen)


def _parts(value: Any, home: str) -> tuple[Any, ...]:
    if isinstance(value, np.ndarray):
        return () if value.dtype.hasobject else (value.shape, value.dtype.str, value.tobytes())
    if is_torch_module(value):
        settings = [(name, key, kept) for name, part in value.named_modules() for key, kept in vars(part).items()]
        plain = [entry for entry in settings if isinstance(entry[2], _PLAIN) and entry[1][0] != "_"]
        return (*sorted(value.state_dict().items()), *sorted(plain, key=lambda entry: entry[:2]))
    if hasattr(value, "untyped_storage"):
        import torch

        numbers = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return (tuple(value.shape), str(value.dtype), numbers.tobytes())
    if isinstance(value, CodeType):
        return (value.co_code, value.co_names, value.co_consts)
    if isinstance(value, FunctionType):
        cells = tuple(cell.cell_contents for cell in value.__closure__ or () if cell != CellType())
        known = value.__globals__ if value.__module__ == home else {}
        read = tuple(known[name] for name in value.__code__.co_names if name in known)
        return (value.__code__, value.__defaults__, tuple(sorted((value.__kwdefaults__ or {}).items())), cells, read)
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, partial):
        return (value.func, value.args, *sorted(value.keywords.items()))
    return tuple(sorted(getattr(value, "__dict__", {}).items()))


def _source(module: Any) -> bytes:
    file = getattr(module, "__file__", None)
    return b"" if file is None else Path(file).read_bytes()
