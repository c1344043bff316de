"""Models and node features as a user names them: a folder that ``train`` wrote, or ``package.module:factory``."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flipproof.classifiers import is_torch_module
from flipproof.errors import InputError
from flipproof.models.identity import content_of

if TYPE_CHECKING:
    from flipproof.models.storage import SavedModel

__all__ = ["LoadedModel", "features_identity", "hook_identity", "load_features", "load_model", "model_identity"]


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

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What its folder remembers; nothing for a user's own."""
        return {} if self.saved is None else self.saved.metadata

    def features(self, asked: str | None) -> str | None:
        """The name of the node features: those asked for, else those that it was trained with."""
        stored = self.metadata.get("features")
        return asked or (stored if isinstance(stored, str) else None)


def load_model(name: str) -> LoadedModel:
    """A folder that ``train`` wrote, or ``package.module:factory`` for a user's own model."""
    path = Path(name).expanduser()
    if ":" in name and not path.is_dir():
        return _own_model(name)
    from flipproof.models.storage import NAMES, load, load_metadata
    from flipproof.models.wl_svm import WLSVM

    if path.is_dir():
        saved = load_metadata(path)
        return LoadedModel(load(path), str(saved.config["name"]), saved.weights_hash, saved)
    if name in (*NAMES, WLSVM.name):
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
    if is_torch_module(model):
        model.eval()
    return LoadedModel(model, name, model_identity(model, source), None)


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
        return hook_identity(hook)
    return f"{name} sha256:{hashlib.sha256(_imported(str(name), '--features')[1]).hexdigest()}"


def hook_identity(hook: Any) -> str:
    """The same for a hook itself, as a classifier has it."""
    if hook is None or hook.spec is not None:
        return "own" if hook is None else str(hook.spec)
    if hasattr(hook, "parts"):
        return "+".join(map(hook_identity, hook.parts))
    name = getattr(hook.function, "__qualname__", None) or repr(hook.function).partition(" object at ")[0].lstrip("<")
    return f"{name} sha256:{model_identity(hook.function)}"


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


def model_identity(model: Any, source: bytes | None = None) -> str:
    """Hash of a model: of the weights of one of ours, as its folder has it; else of the weights and the user's code.

    Args:
        model: A torch module, or a callable from graphs to labels.
        source: The code; by default that of the file in which the model's class or function is defined.

    A function's code counts with the constants, defaults, captured and global variables that it reads, an object's class with
    its attributes: numbers, texts, tuples, arrays, networks and functions. Not covered are lists, dictionaries and other objects
    that it keeps.
    """
    kind = type(model) if is_torch_module(model) or not hasattr(model, "__qualname__") else model
    if kind.__module__.startswith("flipproof.models."):
        from flipproof.models.storage import packed_weights

        return hashlib.sha256(packed_weights(model)).hexdigest()
    if source is None:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        source = b"" if file is None else Path(file).read_bytes()
    digest = hashlib.sha256(f"{kind.__module__}.{kind.__qualname__}".encode() + source)
    for part in content_of(model):
        digest.update(part)
    return digest.hexdigest()


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
