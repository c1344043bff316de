"""What tells one model of a user's own from another, beside the file that it is written in: weights, constants, variables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from flipproof.classifiers import is_torch_module

__all__ = ["content_of"]

_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.generic)
_OPAQUE = (ModuleType, type, list, dict, set)


def content_of(model: Any) -> Iterator[bytes]:
    """The bytes that make up a model: weights, code, constants, attributes, captured and global variables that it reads.

    What cannot be told is left out, and so are lists, dictionaries and sets: what a model notes down while it is asked, such as
    a list of calls, does not make it another one.
    """
    named = model.func if isinstance(model, partial) else model
    found = _Content(str(getattr(named, "__module__", "")))
    yield from found.of(model)
    if not isinstance(model, FunctionType):  # a class of a notebook has no file that its source would stand in
        for name, value in sorted(vars(type(model)).items()):
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType) or (isinstance(value, _PLAIN) and not name.startswith("__")):
                yield name.encode()
                yield from found.of(function)


class _Content:
    """Everything once, however many ways lead to it. Global variables are those of functions in the model's own module."""

    def __init__(self, module: str) -> None:
        self.module, self.seen = module, dict[int, Any]()

    def of(self, value: Any) -> Iterator[bytes]:
        yield f"<{type(value).__qualname__}>".encode()
        if isinstance(value, _PLAIN):
            yield repr(value).encode()
        elif isinstance(value, (tuple, frozenset)):
            parts = [b"".join(self.of(part)) for part in value]
            yield from parts if isinstance(value, tuple) else sorted(parts)
        elif not isinstance(value, _OPAQUE) and id(value) not in self.seen:
            self.seen[id(value)] = value
            yield from self._of_object(value)

    def _of_object(self, value: Any) -> Iterator[bytes]:
        if isinstance(value, np.ndarray):
            if not value.dtype.hasobject:
                yield f"{value.shape} {value.dtype.str}".encode() + np.ascontiguousarray(value).tobytes()
        elif is_torch_module(value):
            for key, tensor in sorted(value.state_dict().items()):
                yield key.encode() + _of_tensor(tensor)
            for name, part in value.named_modules():
                told = {key: kept for key, kept in vars(part).items() if isinstance(kept, _PLAIN) and key[0] != "_"}
                yield name.encode()
                yield from self.of(tuple(sorted(told.items())))
        elif hasattr(value, "untyped_storage"):
            yield _of_tensor(value)
        elif isinstance(value, CodeType):
            yield value.co_code + " ".join(value.co_names).encode()
            yield from self.of(value.co_consts)
        elif isinstance(value, FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, MethodType):
            yield from self.of((value.__func__, value.__self__))
        elif isinstance(value, partial):
            yield from self.of((value.func, value.args, *sorted(value.keywords.items())))
        else:
            yield from self.of(tuple(sorted(getattr(value, "__dict__", {}).items())))

    def _of_function(self, function: FunctionType) -> Iterator[bytes]:
        code, known = function.__code__, function.__globals__
        captured = tuple(map(_cell, function.__closure__ or ()))
        named = tuple(sorted((function.__kwdefaults__ or {}).items()))
        own = function.__module__ == self.module
        read = tuple(known[name] for name in code.co_names if name in known) if own else ()
        yield from self.of((code, function.__defaults__, named, captured, read))


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _of_tensor(tensor: Any) -> bytes:
    import torch

    head = f"{tuple(tensor.shape)} {tensor.dtype}".encode()
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    return head + bytes(plain.view(torch.uint8).numpy().tobytes())
