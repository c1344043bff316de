"""What a defence is asked, what a user may give for it, and the pieces of work that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from flipproof.certificates.certificate import Certificate
from flipproof.errors import InputError

__all__ = ["Option", "Question", "Request"]


@dataclass(frozen=True)
class Option:
    """A value that a user gives by name: on the command line as ``--name``, in a config file as ``name``.

    Attributes:
        name: With underscores.
        kind: ``int``, ``float``, ``str`` or ``bool``.
        help: A whole sentence.
        default: ``None`` where the defence or the model folder decides.
        least: The smallest value of a number.
    """

    name: str
    kind: type
    help: str
    default: Any = None
    least: int | None = None


@dataclass(frozen=True)
class Request:
    """A piece of work on a graph.

    Attributes:
        key: Names the piece among those of its graph.
        given: Pieces that the work reads.
        amount: How much progress it is, in the question's unit.
    """

    key: str
    given: Mapping[str, bytes] = field(default_factory=dict)
    amount: int = 0


@dataclass(frozen=True)
class Question:
    """What is asked about every graph: plain values, all of which stand in ``run.json``. This one leaves nothing open."""

    doing: ClassVar[str] = "asking"
    unit: ClassVar[str] = "graphs"

    @classmethod
    def of(cls, *, graphs: int = 1, **asked: Any) -> Self:
        """The question that these values ask, checked; ``graphs`` is the number of graphs that are asked about together."""
        if asked:
            raise InputError(f"there is no such setting: {next(iter(asked))} (leave it out)")
        return cls()

    @property
    def amount(self) -> int | None:
        """Progress per graph, in :attr:`unit`; ``None`` where graphs are counted."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; :meth:`of` takes it back."""
        return asdict(self)

    def fits(self, evidence: Any) -> bool:
        """Whether evidence answers this question, as far as can be told without reading the certificate."""
        return True

    def read(self, evidence: Any) -> Certificate:
        """The certificate that the question asks for; refuses evidence that does not answer it."""
        found: Certificate = evidence.certify()
        return found

    @property
    def not_derived(self) -> str:
        """What in a certificate is taken from the evidence as it is, rather than derived from scores or votes, in words."""
        return ""

    @property
    def other_readings(self) -> tuple[str, ...]:
        """The names that :meth:`readings` may give."""
        return ()

    def readings(self, evidence: Any) -> dict[str, Certificate]:
        """Certificates that other methods read from the same evidence at the same level, by method; for comparison."""
        return {}
