"""``flipproof export``: a run's table of certificates, to a file or to stdout."""

from __future__ import annotations

import sys
from pathlib import Path

from flipproof.errors import InputError
from flipproof.runs.folder import Run, write_bytes
from flipproof.runs.table import FORMATS, formatted, read_table

__all__ = ["export"]


def export(folder: Path, *, kind: str, out: Path | None) -> int:
    """Write the table. The exit code."""
    if kind not in FORMATS:
        raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {kind!r} (csv is the default)")
    if kind == "parquet" and out is None:
        raise InputError(
            "--format parquet is not text and needs a file; got no --out (for instance --out certificates.parquet)"
        )
    if out is not None and out.is_dir():
        raise InputError(f"--out must be a file; {out} is a folder (give a file name in it)")
    content = formatted(read_table(Run.open(folder)), kind)
    if out is not None:
        write_bytes(out, content)
        return 0
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return 0
