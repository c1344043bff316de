"""``flipproof export``: a run's table of certificates, to a file or to stdout."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from flipproof.cli.options import option
from flipproof.errors import InputError
from flipproof.files import write_bytes
from flipproof.runs.settings import CertifySettings
from flipproof.runs.table import FORMATS, formatted, read_table

__all__ = ["Options", "run"]


@dataclass(frozen=True)
class Options:
    """What ``flipproof export`` is asked for."""

    folder: Path = option("A folder that certify wrote.", argument="RUN")
    kind: str = option("Format of the table: csv, parquet or json.", "csv", flags=("--format",))
    out: Path | None = option("File to write; by default stdout.", None)
    config: Path | None = option("TOML file of options; what is typed here prevails.", None, panel="Output")


def run(options: Options) -> int:
    """Write the table. The exit code."""
    kind, out = options.kind, options.out
    if kind not in FORMATS:
        raise InputError(f"--format must be one of {', '.join(FORMATS)}; got {kind!r} (csv is the default)")
    if kind == "parquet" and out is None:
        raise InputError(
            "--format parquet is not text and needs a file; got no --out (for instance --out certificates.parquet)"
        )
    if out is not None and out.is_dir():
        raise InputError(f"--out must be a file; {out} is a folder (give a file name in it)")
    CertifySettings.read(options.folder)
    content = formatted(read_table(options.folder), kind)
    if out is not None:
        write_bytes(out, content)
        return 0
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    return 0
