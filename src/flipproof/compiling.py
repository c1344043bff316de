"""Loops that numba compiles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def can_compile() -> bool:
    """Whether loops are compiled; ``NUMBA_DISABLE_JIT=1`` turns that off, and slower ways are taken."""
    import numba

    return not numba.config.DISABLE_JIT


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Compiled on its first call, and kept on disk for later processes where a folder can be written."""
    import numba

    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache
        return numba.njit(**options)(function)
