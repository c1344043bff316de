"""What numba compiles is kept where there is a folder for it, and compiled all the same where there is none."""

from __future__ import annotations

from typing import Any

import numba
import pytest

from flipproof.compiling import compiled


def test_no_folder_for_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba refuses to be told to keep what it compiled; the loops are then compiled in every process."""
    plain = numba.njit

    def refusing(*given: Any, cache: bool = False, **more: Any) -> Any:
        def decorate(function: Any) -> Any:
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return plain(**more)(function)

        return decorate

    monkeypatch.setattr(numba, "njit", refusing)
    found = compiled(lambda number: number + 1)
    assert found(2) == 3
