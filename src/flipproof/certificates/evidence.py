"""Evidence: everything a model said about one graph, stored whole or not at all.

A certificate is a re-reading of its evidence. Evidence is a frozen dataclass; a file of it is an npz without pickle, which holds
every field but the graph under its name: arrays as they are, all else in a plain JSON description beside them. Node features are
stored only if they were under noise: no other certificate reads them.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate, WeakSpots, cut_grid, up_to
from flipproof.errors import InputError
from flipproof.fields import Parts
from flipproof.files import write_bytes
from flipproof.graphs import Graph

_FORMAT = 3

# what numpy, zipfile, zlib, json and our own checks raise over bytes that are not ours
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, OSError, RuntimeError),
)


def by_fields(kind: type[Any]) -> Parts:
    """A dataclass, stored by its fields."""
    return Parts((), plain=asdict, made=lambda values: kind(**values), stored=())


class Evidence(ABC):
    """What a model said about one graph; a frozen dataclass of arrays, plain values and what :attr:`parts` names."""

    kind: ClassVar[str]  # tells one kind of evidence from another in a file
    task: ClassVar[str] = "graphs"  # what it is about: a graph, or the nodes of one, which share it
    in_blocks: ClassVar[bool] = False  # whether it is asked for in pieces that are tuples of arrays, texts and numbers
    versions: ClassVar[Mapping[str, int]] = {}  # of what made the graphs that the model was shown; no other can be read
    parts: ClassVar[Mapping[str, Parts]] = {}  # how fields are stored that are neither arrays nor plain values
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    graph: Graph  # the clean graph, once it was stored without node features, unless they were under noise
    num_classes: int  # declared classes, including those that were never answered
    compared: int = 0  # answers of the model that were compared with a second one
    differing: int = 0  # of these, what a shortcut to the model answered otherwise than the model itself

    @abstractmethod
    def certify(self, *args: Any, **reading: Any) -> Certificate:
        """The certificate that follows, without a model call; each kind of evidence has arguments of its own."""

    @property
    def calls(self) -> int:
        """Number of graphs that the model answered."""
        return 1

    @property
    def noisy_features(self) -> bool:
        """Whether the node features, zeros and ones, were under noise."""
        return False

    def made_again(self) -> bool:
        """Whether what the model was shown, made again from its description, is what it was shown. For auditors."""
        return True

    def weak_spots(self, radius: int) -> WeakSpots | None:
        """What the answer rests on and where an attacker would strike, without a model call; ``None`` if that is not known.

        Args:
            radius: Flips that the certificate withstands; at least 0. Attacks of more flips are looked for.
        """
        return None

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values and arrays of all fields but the graph, by ``field`` or ``field.part``; what is ``None`` is left out."""
        values = dict[str, Any]()
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is None or entry.name == "graph":
                continue
            parts = self.parts[entry.name].plain(value) if entry.name in self.parts else {"": value}
            values |= {f"{entry.name}.{name}".removesuffix("."): part for name, part in parts.items()}
        if self.noisy_features and self.graph.node_features is not None:
            values["features.cells"] = np.flatnonzero(self.graph.node_features)
            values["features.columns"] = self.graph.node_features.shape[1]
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return {name: value for name, value in values.items() if name not in arrays}, arrays

    @property
    def digest(self) -> str:
        """Hash of everything a certificate reads; independent of the machine and of how a file is packed."""
        plain, arrays = self.content()
        described = json.dumps([self.kind, self.versions, self.graph.topology, plain], sort_keys=True)
        digest = hashlib.sha256(described.encode())
        for name, array in sorted(arrays.items()):
            same = array.astype("<u4" if array.dtype.kind in "iub" and array.dtype.itemsize <= 4 else array.dtype)
            digest.update(f"{name} {same.shape} {same.dtype.str}".encode() + same.tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        return (self.digest, _described(self.graph)) == (other.digest, _described(other.graph))

    def to_bytes(self) -> bytes:
        """The content of a file."""
        plain, arrays = self.content()
        head = {"format": _FORMAT, "kind": self.kind, "versions": self.versions, "graph": _described(self.graph)}
        text = np.frombuffer(json.dumps(head | {"plain": plain}).encode(), dtype=np.uint8)
        own: dict[str, Any] = {"edges": self.graph.edges, "frozen": self.graph.frozen, "description": text}
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **own, **arrays)
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, source: str = "it") -> Self:
        """What :meth:`to_bytes` wrote; ``source`` is named if it is cut off, altered in shape or of another kind."""
        try:
            return cls._from_bytes(content)
        except _UNREADABLE as error:
            why = str(error) or type(error).__name__
            raise InputError(f"{source} is not a whole file of {cls.kind}: {why} (delete it and ask again)") from error

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            values = {name: stored[name] for name in stored.files}
        head = json.loads(values.pop("description").tobytes())
        if head["format"] != _FORMAT:
            raise InputError(f"it has format {head['format']}, this flipproof reads format {_FORMAT}")
        if head["kind"] != cls.kind:
            raise InputError(f"it holds {head['kind']}, not {cls.kind}")
        for name, version in cls.versions.items():
            if head["versions"][name] != version:
                raise InputError(
                    f"it was made with version {head['versions'][name]} of the {name}, this flipproof has version {version}"
                )
        topology = head["graph"].pop("topology")
        graph = Graph(**head["graph"], edges=values.pop("edges"), frozen=values.pop("frozen"))
        if graph.topology != topology:
            raise InputError("it was altered, its edges are not those that were hashed")
        values |= {name: tuple(value) if isinstance(value, list) else value for name, value in head["plain"].items()}
        if "features.columns" in values:
            features = np.zeros((graph.num_nodes, values["features.columns"]), dtype=np.float32)
            features.reshape(-1)[values["features.cells"]] = 1
            graph = graph.replaced(node_features=features)
        own: dict[str, Any] = {"graph": graph}
        for entry in fields(cls):
            parts = {name.removeprefix(f"{entry.name}."): name for name in values if name.startswith(f"{entry.name}.")}
            if parts:
                own[entry.name] = cls.parts[entry.name].made({part: values[name] for part, name in parts.items()})
            elif entry.name in values:
                own[entry.name] = values[entry.name]
        return cls(**own)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` (npz, no pickle), whole or not at all."""
        write_bytes(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote."""
        return cls.from_bytes(Path(path).read_bytes(), source=str(path))


def _described(graph: Graph) -> dict[str, Any]:
    return {"num_nodes": graph.num_nodes, "label": graph.label, "name": graph.name, "topology": graph.topology}


@dataclass(frozen=True, eq=False)
class Answer(Evidence):
    """A single answer: what an undefended model, or one that sees no edges, says about a graph."""

    kind = "answer"

    label: int  # the answer
    graph: Graph  # the graph
    num_classes: int  # number of declared classes
    edge_blind: bool  # whether the model saw no edge at all, so that the answer stands for every graph on these nodes

    def __post_init__(self) -> None:
        if not 0 <= self.label < self.num_classes:
            raise InputError(f"the answer must lie in 0..{self.num_classes - 1}; got {self.label} (check num_classes)")

    def certify(self) -> Certificate:
        """Certified at every radius if no edge was seen, otherwise at radius 0: the answer itself, and nothing more."""
        graph, counts = self.graph, [0] * self.num_classes
        counts[self.label] = 0 if self.edge_blind else 1
        radius = graph.num_slots if self.edge_blind else 0
        return Certificate(
            label=self.label,
            radius=radius,
            method="edge-blind" if self.edge_blind else "none",
            samples=sum(counts),
            counts=tuple(counts),
            num_slots=graph.num_slots,
            grid=cut_grid(up_to(radius, graph.max_adds, graph.max_removes)),
            votes_radius=radius if self.edge_blind else -1,
        )
