"""Run folders made by hand, and what stands in them altered."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

import flipproof as fp
from flipproof.certificates.evidence import Evidence
from flipproof.defences.defence import DefendedClassifier, described
from flipproof.fields import from_plain, to_plain
from flipproof.runs.run_folder import STORE_FILE, CertifySettings, Store, open_run


def settings_of(defended: DefendedClassifier, graphs: Mapping[int, fp.Graph], **question: Any) -> CertifySettings:
    """What ``certify`` would write for these graphs."""
    return CertifySettings(
        data="made by hand",
        data_sha256="0" * 64,
        class_names=["a", "b"],
        part="all",
        split_seed=0,
        graphs=list(graphs),
        model="own",
        model_sha256="1" * 64,
        features="own",
        num_classes=defended.num_classes,
        defence=described(defended.defence),
        question=to_plain(from_plain(defended.defence.request, {**question, "graphs": len(graphs)})),
    )


def evidence_of(folder: str | Path, index: int) -> Any:
    """The evidence of a graph in a finished run."""
    with open_run(folder, CertifySettings) as run:
        kind: type[Evidence] = run.settings.defence_class.evidence
        return kind.from_bytes(run.store.load(index))


def replace_evidence(folder: str | Path, index: int, evidence: Evidence | None) -> None:
    """Put other evidence in its place, with its hash, as somebody with flipproof in hand could; ``None`` removes it."""
    with Store(Path(folder) / STORE_FILE, write=True) as store:
        if evidence is None:
            store.drop(index)
        else:
            store.finish(index, evidence.to_bytes())


def spoil(folder: str | Path, index: int | str) -> None:
    """Cut what is stored about a graph, and leave its hash."""
    with Store(Path(folder) / STORE_FILE, write=True) as store:
        query = "UPDATE finished SET content = substr(content, 1, length(content) - 20) WHERE item = ?"
        store._do(query, index)


def stored(folder: str | Path) -> list[tuple[Any, ...]]:
    """Everything that is finished in the store, in order."""
    with Store(Path(folder) / STORE_FILE, write=False) as store:
        return list(store._do("SELECT * FROM finished ORDER BY item"))


def alter_row(folder: str | Path, index: int, column: str, value: object) -> None:
    """Change a cell of ``certificates.parquet``."""
    path = Path(folder) / "certificates.parquet"
    table = parquet.read_table(path)
    rows = table.to_pylist()
    next(row for row in rows if row["graph"] == index)[column] = value
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=table.schema), path)
