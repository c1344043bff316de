"""Molecules from SMILES, by RDKit: atoms are nodes, bonds are edges."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flipproof.datasets.dataset import Attribute, Dataset
from flipproof.datasets.folder import assembled
from flipproof.datasets.graph_files import RawGraph, read_table_rows
from flipproof.errors import InputError, MissingExtraError

_DEPENDENT = Attribute("hydrogens, aromaticity, rings", remark="they follow from the bonds, which the noise changes")


def smiles(path: str | os.PathLike[str], *, like: Sequence[Attribute] = ()) -> Dataset:
    """Molecules from a CSV file with the columns ``smiles`` and ``label``, and ``name`` if there is one.

    Every heavy atom is a node with the features ``element`` (one-hot) and ``charge``; every bond is an edge. The kind of a bond
    is not read: a bond that the noise adds has none. Neither are the number of hydrogens, aromaticity, hybridisation and
    membership in rings: they depend on the bonds, so a certificate would be false.

    Needs RDKit: ``pip install rdkit``.

    Args:
        path: The CSV file.
        like: As for :func:`flipproof.datasets.folder`.
    """
    table = Path(path)
    heading, rows = read_table_rows(table, ("smiles", "label"))
    if not rows:
        raise InputError(f"{table} lists no molecule; expected lines of smiles,label (add one line per molecule)")
    read = [molecule(row["smiles"], row.get("name") or row["smiles"], where) for where, row in rows]
    left = sorted(set(heading) - {"smiles", "label", "name"})
    remarks = [f"columns of {table.name} that are not read: {', '.join(left)}"] if left else []
    labels = [row["label"] for _, row in rows]
    return assembled(read, labels, table.stem, like=like, more=[_DEPENDENT], remarks=remarks)


def molecule(text: str, name: str, where: str) -> RawGraph:
    """One molecule, before its features are columns."""
    try:
        from rdkit import Chem, rdBase
    except ImportError as error:
        raise MissingExtraError(
            "molecules from SMILES need RDKit, which is not installed (pip install rdkit)"
        ) from error
    with rdBase.BlockLogs():
        found: Any = Chem.MolFromSmiles(text)
    if found is None or not found.GetNumAtoms():
        raise InputError(f"{where}: not a molecule that RDKit can read: {text!r} (correct the SMILES)")
    atoms = [{"element": atom.GetSymbol(), "charge": atom.GetFormalCharge()} for atom in found.GetAtoms()]
    bonds = [tuple(sorted((bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()))) for bond in found.GetBonds()]
    return RawGraph(name, where, atoms, [(u, v) for u, v in bonds], {"bond type"} if bonds else set())
