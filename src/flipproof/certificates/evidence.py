"""Evidence: everything a model said about one graph, kept so that a certificate is a re-reading of it.

Stored as one npz file without pickle: named arrays beside a plain JSON description. Node features are not stored: no certificate
reads them.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from flipproof.certificates.certificate import Certificate, cut_grid, up_to
from flipproof.errors import InputError
from flipproof.files import write_bytes
from flipproof.graphs import Graph

_FORMAT = 2

# what numpy, zipfile, zlib, json and our own checks raise over bytes that are not ours
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(EOFError, OSError, RuntimeError),
)


@dataclass(frozen=True)
class ClassCell:
    """A cell of a table that names a class: whoever shows it knows the name."""

    label: int


@dataclass(frozen=True, eq=False)
class WeakSpots:
    """Where an attacker would strike, as far as the evidence tells.

    Attributes:
        rival: The class that would overtake first.
        flips: Node pairs ``(u, v)``, ``u < v``, in the order in which an attacker would choose them.
        succeeds: Whether the flips are known to change the answer. If not, they are a candidate attack, the worst one found.
        weights: How much each node carries of the label's lead over the rival, ``[n]``, negative where it speaks for the rival;
            ``None`` where the lead is not a sum over nodes.
        rest: The part of the lead that no single node carries.
        caption: What the table shows.
        columns: Heads of the table.
        rows: Its cells: text, numbers and classes.
    """

    rival: int
    flips: tuple[tuple[int, int], ...] = ()
    succeeds: bool = False
    weights: NDArray[np.float64] | None = None
    rest: float = 0.0
    caption: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | ClassCell, ...], ...] = ()

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise InputError(f"every row of weak spots must have {len(self.columns)} cells, one per column")
        if self.succeeds and not self.flips:
            raise InputError("weak spots without flips cannot be a successful attack (leave succeeds out)")


class Evidence(ABC):
    """What a model said about one graph.

    Attributes:
        kind: Tells one kind of evidence from another in a file.
        graph: The clean graph, without node features once it was stored.
        num_classes: Number of declared classes ``C``, including those that were never answered.
    """

    kind: ClassVar[str]
    graph: Graph
    num_classes: int

    @abstractmethod
    def certify(self, **reading: Any) -> Certificate:
        """The certificate that follows, without a model call."""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """Everything besides the graph and the arrays that gives them their meaning; plain JSON."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was answered, as named arrays."""

    @classmethod
    @abstractmethod
    def from_parts(cls, graph: Graph, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The evidence that :meth:`description` and :meth:`arrays` describe."""

    @property
    def calls(self) -> int:
        """Number of graphs that the model was asked about."""
        return 1

    def made_again(self) -> bool:
        """Whether what the model was shown, made again from its description, is what it was shown. For auditors."""
        return True

    def weak_spots(self, radius: int) -> WeakSpots | None:
        """What the answer rests on and where an attacker would strike, without a model call; ``None`` if that is not known.

        Args:
            radius: Flips that the certificate withstands; at least 0. Attacks of more flips are looked for.
        """
        return None

    @property
    def digest(self) -> str:
        """Hash of everything a certificate reads; independent of the machine and of how a file is packed."""
        described = json.dumps([self.kind, self.graph.topology, self.description()], sort_keys=True)
        digest = hashlib.sha256(described.encode())
        for name, array in sorted(self.arrays().items()):
            plain = array.astype("<u4" if array.dtype.kind in "iub" and array.dtype.itemsize <= 4 else array.dtype)
            digest.update(f"{name} {plain.shape} {plain.dtype.str}".encode() + plain.tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, type(self)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """All that two equal pieces of evidence share; arrays as lists."""
        return {
            **_described(self.graph),
            **self.description(),
            **{name: array.tolist() for name, array in self.arrays().items()},
        }

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_content"}

    def to_bytes(self) -> bytes:
        """The content of a file."""
        kept: bytes | None = self.__dict__.get("_content")
        if kept is not None:  # it was read from this, or written before
            return kept
        described = {"format": _FORMAT, "kind": self.kind, **_described(self.graph), **self.description()}
        content = io.BytesIO()
        np.savez_compressed(
            content,
            allow_pickle=False,
            edges=self.graph.edges,
            frozen=self.graph.frozen,
            description=np.frombuffer(json.dumps(described).encode(), dtype=np.uint8),
            **self.arrays(),
        )
        self.__dict__["_content"] = content.getvalue()
        return content.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, *, source: str = "it") -> Self:
        """What :meth:`to_bytes` wrote; ``source`` is named if it is cut off, altered in shape or of another kind."""
        try:
            evidence = cls._from_bytes(content)
            evidence.__dict__["_content"] = content
            return evidence
        except _UNREADABLE as error:
            reason = str(error) or type(error).__name__
            raise InputError(
                f"{source} is not a whole file of {cls.kind}: {reason} (delete it and ask again)"
            ) from error

    @classmethod
    def _from_bytes(cls, content: bytes) -> Self:
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        description = json.loads(arrays.pop("description").tobytes())
        if description["format"] != _FORMAT:
            raise InputError(f"it has format {description['format']}, this flipproof reads format {_FORMAT}")
        if description.get("kind") != cls.kind:
            raise InputError(f"it holds {description.get('kind')}, not {cls.kind}")
        graph = Graph(
            description["num_nodes"],
            arrays.pop("edges"),
            label=description["label"],
            frozen=arrays.pop("frozen"),
            name=description["name"],
        )
        if graph.topology != description["topology"]:
            raise InputError("it was altered, its edges are not those that were hashed")
        return cls.from_parts(graph, description, arrays)

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
    """A single answer: what an undefended model, or one that sees no edges, says about a graph.

    Attributes:
        label: The answer.
        graph: The graph.
        num_classes: Number of declared classes.
        edge_blind: Whether the model saw no edge at all, so that the answer stands for every graph on these nodes.
    """

    kind = "answer"

    label: int
    graph: Graph
    num_classes: int
    edge_blind: bool

    def __post_init__(self) -> None:
        if not 0 <= self.label < self.num_classes:
            raise InputError(f"the answer must lie in 0..{self.num_classes - 1}; got {self.label} (check num_classes)")

    def certify(self, **reading: Any) -> Certificate:
        """Certified at every radius if no edge was seen, otherwise at radius 0: the answer itself, and nothing more."""
        graph, counts = self.graph, np.zeros(self.num_classes, dtype=int)
        counts[self.label] = 0 if self.edge_blind else 1
        radius = graph.num_slots if self.edge_blind else 0
        return Certificate(
            label=self.label,
            radius=radius,
            method="edge-blind" if self.edge_blind else "none",
            alpha=0.0,
            samples=int(counts.sum()),
            counts=tuple(counts.tolist()),
            p_lower=1.0,
            p_upper=0.0,
            noise=None,
            num_slots=graph.num_slots,
            grid=cut_grid(up_to(radius, graph.max_adds, graph.max_removes)),
            votes_radius=radius if self.edge_blind else -1,
        )

    def description(self) -> dict[str, Any]:
        """Whether edges were seen."""
        return {"num_classes": self.num_classes, "edge_blind": self.edge_blind}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The label."""
        return {"labels": np.array([self.label], dtype=np.uint32)}

    @classmethod
    def from_parts(cls, graph: Graph, description: dict[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Answer:
        """See :class:`Evidence`."""
        return cls(int(arrays["labels"][0]), graph, description["num_classes"], description["edge_blind"])
