"""Options of the command line, declared once: fields of frozen dataclasses, in groups that commands share.

A command is a dataclass of its options and a function that takes it. ``option(...)`` gives a field its help text; what a defence
takes is declared by the defence and joins the commands that ask for it.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from flipproof.datasets.sources import DataSource
from flipproof.engines import Engine, ray_cluster
from flipproof.errors import InputError
from flipproof.fields import Option
from flipproof.progress import note

__all__ = [
    "ENGINES",
    "ClusterOptions",
    "CompareOptions",
    "DataOptions",
    "Defended",
    "FeatureChoice",
    "FeatureOptions",
    "ModelDataOptions",
    "OutputOptions",
    "PrintOptions",
    "SourceOptions",
    "TrainingOptions",
    "WorkerOptions",
    "checked_seconds",
    "command_function",
    "option",
]

ENGINES = ("local", "ray")
_UNITS = {"s": 1, "m": 60, "h": 3600}


def option(
    help: str,
    default: Any = MISSING,
    *,
    panel: str | None = None,
    flags: tuple[str, ...] = (),
    least: int | None = None,
    argument: str | None = None,
) -> Any:
    """A field that is an option of the command line.

    Args:
        help: A whole sentence.
        default: Without one the option must be given.
        panel: Heading in the help.
        flags: Names, where they are not the field's own.
        least: The smallest value of a number.
        argument: For an argument without a name: what the help calls it.
    """
    meta = {"help": help, "panel": panel, "flags": flags, "least": least, "argument": argument}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=meta, kw_only=True)
    return field(default=default, metadata=meta, kw_only=True)


@dataclass(frozen=True)
class PrintOptions:
    """What a command may print, and how it was called: to be said again when it is stopped."""

    as_json: bool = option("Print JSON only.", False, panel="Output", flags=("--json",))
    quiet: bool = option("Print nothing but errors.", False, panel="Output", flags=("--quiet", "-q"))

    @property
    def silent(self) -> bool:
        """Whether progress stays hidden."""
        return self.quiet or self.as_json

    @property
    def again(self) -> str:
        """The command that continues."""
        return shlex.join(["flipproof", *sys.argv[1:]])


@dataclass(frozen=True)
class OutputOptions(PrintOptions):
    """What a command may print; its options may stand in a file."""

    config: Path | None = option("TOML file of options; what is typed here prevails.", None, panel="Output")


@dataclass(frozen=True)
class WorkerOptions:
    """How many processes."""

    workers: int | None = option(
        "Number of processes at a time; by default one per core.", None, panel="Where", least=1
    )


@dataclass(frozen=True)
class ClusterOptions(WorkerOptions):
    """Processes of this machine, or a cluster."""

    engine: str = option("local, or ray for a cluster (needs Ray: pip install ray).", "local", panel="Where")
    address: str | None = option(
        "Address of a Ray cluster that is running; by default one is started here.", None, panel="Where"
    )

    def check_engine(self) -> None:
        """Refuse an engine that is not known, or not installed."""
        if self.engine not in ENGINES:
            raise InputError(
                f"--engine must be one of {', '.join(ENGINES)}; got {self.engine!r} (local is the default)"
            )
        if self.address is not None and self.engine != "ray":
            raise InputError(f"--address is a Ray cluster's; got --engine {self.engine} (add --engine ray)")
        if self.engine == "ray":
            ray_cluster.installed()

    @contextmanager
    def cluster(self) -> Iterator[Engine | None]:
        """The Ray cluster, where one is asked for."""
        if self.engine == "ray":
            with ray_cluster.RayCluster(self.address, workers=self.workers) as cluster:
                note(f"working on {cluster}", quiet=getattr(self, "silent", False))
                yield cluster
        else:
            yield None


@dataclass(frozen=True)
class SourceOptions:
    """A data set."""

    data: str = option(
        "topologies, a TU name (with --root), a folder with labels.csv, or a CSV file of molecules (smiles,label).",
        panel="Data",
    )
    root: str | None = option("Folder of the TU data sets, or of the files of one.", None, panel="Data")
    download: bool = option("Fetch a TU data set that is not there.", False, panel="Data", flags=("--download",))
    symmetrise: bool = option(
        "Take directed graphs as undirected: an edge where either direction has one.", False, panel="Data"
    )
    data_seed: int = option("Seed that makes the topologies.", 0, panel="Data")


@dataclass(frozen=True)
class DataOptions(SourceOptions):
    """A data set and its split, given in full."""

    split_seed: int = option("Seed of the split.", 0, panel="Data")
    test: float = option("Share of the graphs that is kept for certification.", 0.3333, panel="Data")
    validation: float = option("Share of the graphs on which choices are made.", 0.1, panel="Data")

    @property
    def source(self) -> DataSource:
        """The data set that these options name."""
        return DataSource(
            self.data,
            self.root,
            self.download,
            self.data_seed,
            self.split_seed,
            self.test,
            self.validation,
            self.symmetrise,
        )


@dataclass(frozen=True)
class FeatureChoice:
    """Node features."""

    features: str | None = option(
        "Node features, computed on every graph that the model is asked about: own, degree, one-hot-degree, constant, several "
        "joined by +, or package.module:function.",
        None,
        panel="Data",
    )


@dataclass(frozen=True)
class FeatureOptions(FeatureChoice):
    """Node features of one model."""

    trust_features: bool = option(
        "Accept node features that look as if computed from the clean edges.",
        False,
        panel="Data",
        flags=("--trust-features",),
    )


_TRAINING_DEFAULTS = {"learning_rate": 0.01, "batch_size": 32, "copies": 1}


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained."""

    epochs: int = option("Number of passes over the training graphs.", 200, panel="Training")
    learning_rate: float | None = option(
        "Highest learning rate of the schedule; by default 0.01; for local 0.006, with node features 0.003.",
        None,
        panel="Training",
    )
    batch_size: int | None = option(
        "Number of graphs per step; by default 32, and 64 for local.", None, panel="Training"
    )
    copies: int | None = option("Number of noisy versions per graph: by default 1 per step.", None, panel="Training")
    objective: str = option(
        "samples: every noisy copy is to be right. majority: most copies of every graph (with --copies 64, under noise). "
        "attacked: every copy, after the two flips of the graph that hurt most (with --copies 4, under noise). "
        "attacked-votes: the same with a bounded loss, for a model already trained with attacked.",
        "samples",
        panel="Training",
    )
    consistency: float = option("Weight of agreement among the copies of a graph; needs two.", 0.0, panel="Training")
    class_weights: bool = option("Weigh every class alike.", False, panel="Training")

    @property
    def training(self) -> dict[str, Any]:
        """Arguments of :func:`flipproof.train`."""
        every = {entry.name: getattr(self, entry.name) for entry in fields(TrainingOptions)}
        return every | _TRAINING_DEFAULTS | self.given_training

    @property
    def given_training(self) -> dict[str, Any]:
        """Of those that a defence may have a better default for, the ones that were asked for."""
        found = {name: getattr(self, name) for name in _TRAINING_DEFAULTS}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class ModelDataOptions(FeatureOptions):
    """A model and its own data, unless others are given."""

    model: str = option("A folder that train wrote, or package.module:factory for your own model.")
    data: str | None = option("Data set, as for train; by default the model's own.", None, panel="Data")
    root: str | None = option("Folder of the TU data sets, or of the files of one.", None, panel="Data")
    download: bool = option("Fetch a TU data set that is not there.", False, panel="Data", flags=("--download",))
    symmetrise: bool = option(
        "Take directed graphs as undirected: an edge where either direction has one.", False, panel="Data"
    )
    classes: int | None = option("Number of classes of a model of your own.", None, panel="Data", least=2)
    part: str = option("Which graphs: test, validation, train or all.", "test", panel="Data")
    graphs: int | None = option(
        "Number of graphs to take; they are drawn with every class in proportion. By default all.",
        None,
        panel="Data",
        least=1,
    )
    graphs_seed: int = option("Seed that draws them.", 0, panel="Data")
    data_seed: int | None = option("Seed that makes the topologies; by default the model's.", None, panel="Data")
    split_seed: int | None = option("Seed of the split; by default the model's.", None, panel="Data")


@dataclass(frozen=True)
class CompareOptions:
    """Other models to compare with."""

    edge_blind: str | None = option(
        "The line to beat: fit, to learn it from the training graphs now, or a folder of train --model edge-blind.",
        None,
        panel="Compare",
    )


@dataclass(frozen=True)
class Defended:
    """Values of the options that defences declare, by name, as far as they are given; of repeatable ones a list."""

    defence_values: dict[str, Any] = field(default_factory=dict, kw_only=True)


def command_function(
    options: type[Any],
    run: Callable[[Any], int | None],
    joined: Iterable[tuple[str, Option]] = (),
    repeated: Iterable[tuple[str, Option]] = (),
) -> Callable[..., None]:
    """A function with one parameter per option, as the parser wants it.

    Args:
        options: A frozen dataclass; a :class:`Defended` one also takes ``joined``.
        run: What is called with it; its value is the exit code.
        joined: Options of defences, with the name of the defence as heading.
        repeated: The same, for options that may be given several times.
    """
    hints = get_type_hints(options)
    taken = {own.name for own in fields(options)}  # a command's own option prevails over a defence's of the same name
    several = {entry.name: (panel, entry) for panel, entry in repeated if entry.name not in taken}
    extra = several | _merged(joined, taken)
    parameters = [
        _parameter(own.name, hints[own.name], _default(own), dict(own.metadata))
        for own in fields(options)
        if own.metadata
    ]
    for name, (panel, entry) in extra.items():
        shown = "" if entry.default in (None, False) else f" (default: {entry.default})"
        meta = {"help": entry.help + shown, "panel": panel, "least": entry.least, "flags": (), "argument": None}
        kind: Any = bool if entry.kind is bool else entry.kind | None
        if name in several:
            kind = list[entry.kind] | None  # type: ignore[name-defined]
        parameters.append(_parameter(name, kind, False if kind is bool else None, meta))

    def command(**given: Any) -> None:
        values = {name: given.pop(name) for name in extra}
        if extra:
            given["defence_values"] = {
                name: value
                for name, value in values.items()
                if value is not None and value is not False and value != []
            }
        raise typer.Exit(run(options(**given)) or 0)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _default(own: Field[Any]) -> Any:
    return own.default if own.default_factory is MISSING else own.default_factory()


def _merged(joined: Iterable[tuple[str, Option]], taken: set[str]) -> dict[str, tuple[str, Option]]:
    """Options of defences by name; one that several defences declare says what it means to each."""
    found: dict[str, tuple[str, Option]] = {}
    for panel, entry in joined:
        if entry.name in taken:
            continue
        if entry.name not in found:
            found[entry.name] = panel, entry
            continue
        first, other = found[entry.name]
        least = None if None in (entry.least, other.least) else min(entry.least or 0, other.least or 0)
        both = replace(other, help=f"{first}: {other.help} {panel}: {entry.help}", least=least)
        found[entry.name] = first, both
    return found


def _parameter(name: str, kind: Any, default: Any, meta: dict[str, Any]) -> inspect.Parameter:
    flags = tuple(meta["flags"])
    if kind is bool and not flags and default is False:
        flags = (f"--{name.replace('_', '-')}",)
    given: dict[str, Any] = {"help": meta["help"]}
    if meta["least"] is not None:
        given["min"] = meta["least"]
    if meta["argument"] is not None:
        info: Any = typer.Argument(metavar=meta["argument"], **given)
    else:
        info = typer.Option(*flags, rich_help_panel=meta["panel"], **given)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if default is MISSING else default,
        annotation=Annotated[kind, info],
    )


def checked_seconds(text: str) -> float:
    """Seconds from ``90s``, ``10m``, ``1.5h``.

    >>> checked_seconds("10m"), checked_seconds("90 s")
    (600.0, 90.0)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh])\s*", text)
    if found is None or not float(found[1]):
        raise InputError(f"--time must be a time such as 90s, 10m or 2h; got {text!r} (the default is 10m)")
    return float(found[1]) * _UNITS[found[2]]
