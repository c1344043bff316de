"""Options of the command line, declared once: fields of frozen dataclasses, in groups that commands share.

A command is a function of such a dataclass. What a defence takes is declared by the defence and joins the commands that name
it in ``JOINED``.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer

from flipproof.certificates.metrics import short_interval
from flipproof.datasets.sources import DataSource
from flipproof.engines import Engine, ray_cluster
from flipproof.errors import InputError
from flipproof.fields import Option, option, options_of
from flipproof.progress import note

if TYPE_CHECKING:
    from rich.table import Table

_TRAINING_DEFAULTS = {"learning_rate": 0.01, "batch_size": 32, "copies": 1}

data_option, training_option = (partial(option, panel=panel) for panel in ("Data", "Training"))


@dataclass(frozen=True)
class Result:
    """What a command prints: with ``--json`` the summary, otherwise lines and tables of rich."""

    summary: Mapping[str, Any]
    shown: Iterable[Any] = ()
    code: int = 0


# ---- groups ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    json: bool = option("Print JSON only.", False, panel="Output")
    quiet: bool = option("Print nothing but errors.", False, panel="Output", short="-q")

    @property
    def silent(self) -> bool:
        return self.quiet or self.json


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    out: Path = option("Folder for everything that is made; run the same command again to continue.")

    @property
    def kept(self) -> str:
        return "what is finished is kept"


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    workers: int | None = option("Number of processes; by default one per core.", None, panel="Where", least=1)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(WorkerOptions, OutputOptions):
    engine: str = option("local, or ray for a cluster (needs Ray: pip install ray).", "local", panel="Where")
    address: str | None = option("Address of a running Ray cluster; by default one is started.", None, panel="Where")

    def __post_init__(self) -> None:
        if self.engine not in ("local", "ray"):
            raise InputError(f"--engine must be one of local, ray; got {self.engine!r} (local is the default)")
        if self.address is not None and self.engine != "ray":
            raise InputError(f"--address is a Ray cluster's; got --engine {self.engine} (add --engine ray)")
        if self.engine == "ray":
            ray_cluster.installed()

    @contextmanager
    def cluster(self) -> Iterator[Engine | None]:
        if self.engine == "ray":
            with ray_cluster.RayCluster(self.address, workers=self.workers) as cluster:
                note(f"working on {cluster}", quiet=self.silent)
                yield cluster
        else:
            yield None


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    data: Any = data_option("topologies, a TU name (with --root), or a folder with labels.csv.", kind=str)  # noqa: RUF009
    root: str | None = data_option("Folder of the TU data sets, or of the files of one.", None)
    download: bool = data_option("Fetch a TU data set that is not there.", False)
    data_seed: Any = data_option("Seed that makes the topologies.", 0, kind=int)  # noqa: RUF009
    symmetrise: bool = data_option("Join both directions of directed graphs: an edge where either has one.", False)

    @property
    def source_values(self) -> dict[str, Any]:
        """What these options say of a data set, by field of :class:`DataSource`."""
        return {one.name: getattr(self, one.name) for one in fields(DataSource) if hasattr(self, one.name)}

    @property
    def source(self) -> DataSource:
        return DataSource(**self.source_values)


@dataclass(frozen=True, kw_only=True)
class DataOptions(SourceOptions):
    split_seed: int = data_option("Seed of the split.", 0)
    test: float = data_option("Share of the graphs that is kept for certification.", 0.3333)
    validation: float = data_option("Share of the graphs on which choices are made.", 0.1)


@dataclass(frozen=True, kw_only=True)
class FeatureChoice:
    features: str | None = data_option(
        "Node features, computed on every graph that the model is asked about: own, degree, one-hot-degree, constant, several "
        "joined by +, or package.module:function.",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class FeatureOptions(FeatureChoice):
    trust_features: bool = data_option("Accept node features that look as if computed from the clean edges.", False)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    epochs: int = training_option("Number of passes over the training graphs.", 200)
    learning_rate: float | None = training_option(
        "Highest learning rate of the schedule; by default 0.01; for local 0.006, with node features 0.003.", None
    )
    batch_size: int | None = training_option("Number of graphs per step; by default 32, and 64 for local.", None)
    copies: int | None = training_option("Number of noisy versions per graph: by default 1 per step.", None)
    objective: str = training_option(
        "samples: every noisy copy is to be right. majority: most copies of every graph (with --copies 64, under noise). "
        "attacked: every copy, after the two flips of the graph that hurt most (with --copies 4, under noise). "
        "attacked-votes: the same with a bounded loss, for a model already trained with attacked.",
        "samples",
    )
    class_weights: bool = training_option("Weigh every class alike.", False)

    @property
    def training(self) -> dict[str, Any]:
        every = {entry.name: getattr(self, entry.name) for entry in fields(TrainingOptions)}
        return every | _TRAINING_DEFAULTS | self.typed_training

    @property
    def typed_training(self) -> dict[str, Any]:
        """Of those that a defence may have a better default for, the ones that were typed."""
        return {name: value for name in _TRAINING_DEFAULTS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, kw_only=True)
class Defended:
    """Values of the options that defences declare, by name, as far as they were typed; of repeatable ones a list."""

    defence_values: dict[str, Any] = field(default_factory=dict)

    JOINED: ClassVar[tuple[str, ...]] = ()  # options of defences: settings, training_options, asking
    DEFAULTS: ClassVar[Mapping[str, Any]] = {}  # where the command's defaults differ from the defence's


@dataclass(frozen=True, kw_only=True)
class ModelOptions(FeatureOptions, Defended):
    model: str = option("A folder that train wrote, or package.module:factory for your own model.")
    defence: str | None = option("Name of the defence; by default the one that the model or the options imply.", None)
    symmetrise: bool = data_option("Join both directions of directed graphs: an edge where either has one.", False)
    classes: int | None = data_option("Number of classes of a model of your own.", None, least=2)
    memory: str = option("Memory that graphs and the model's work on them may take at once, such as 2GiB.", "1GiB")


@dataclass(frozen=True, kw_only=True)
class ModelDataOptions(ModelOptions, SourceOptions):
    data: str | None = data_option("Data set, as for train; by default the model's own.", None)
    task: str | None = data_option("graphs or nodes; by default what the model was trained for.", None)
    part: str = data_option("Which graphs: test, validation, train or all.", "test")
    graphs: int | None = data_option("Number of graphs, every class in proportion; by default all.", None, least=1)
    graphs_seed: int = data_option("Seed that draws them.", 0)
    data_seed: int | None = data_option("Seed that makes the topologies; by default the model's.", None)
    split_seed: int | None = data_option("Seed of the split; by default the model's.", None)


# ---- commands ----------------------------------------------------------------------------------------------------------


def command_function(run: Callable[[Any], Result | int]) -> Callable[..., None]:
    """A function with one parameter per option, as the parser wants it, that calls a command with the dataclass it takes."""
    options: type[Any] = next(iter(get_type_hints(run).values()))
    required = {one.name for one in fields(options) if one.default is MISSING and one.default_factory is MISSING}
    joined = _joined(options)
    parameters = [_parameter(one, required=one.name in required) for one in (*options_of(options), *joined)]

    def command(**typed: Any) -> None:
        values = {one.name: typed.pop(one.name) for one in joined}
        if joined:
            unset = {name for name, value in values.items() if value is None or value is False or value == []}
            typed["defence_values"] = {name: value for name, value in values.items() if name not in unset}
        raise typer.Exit(run_command(run, options(**typed)))

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def run_command(run: Callable[[Any], Result | int], options: Any) -> int:
    try:
        result = run(options)
    except KeyboardInterrupt:
        kept = getattr(options, "kept", "")
        again = shlex.join(["flipproof", *sys.argv[1:]])
        note(f"stopped; {kept}. continue with: {again}" if kept else "stopped")
        return 130
    if isinstance(result, int):
        return result
    if options.json:
        print(json.dumps(result.summary, allow_nan=False))
    for part in () if options.silent else result.shown:
        if isinstance(part, str):
            print(part)  # never wrapped
        else:
            from rich.console import Console

            Console(file=sys.stdout).print(part)
    return result.code


def _joined(options: type[Any]) -> list[Option]:
    """Options of defences; one that several defences declare says what it means to each, a command's own prevails."""
    if not issubclass(options, Defended):
        return []
    from flipproof.studies.search_space import spaces

    own, joined = {one.name for one in fields(options)}, dict[str, Option]()
    declared = [
        (defence.name.capitalize(), one)
        for defence in spaces()
        for kind in options.JOINED
        for one in getattr(defence, kind)
        if one.name not in own
    ]
    for panel, one in declared:
        default = options.DEFAULTS.get(one.name, one.default)
        told = one.help if default in (None, False) else f"{one.help} (default: {default})"
        entry = replace(one, help=told, panel=panel, default=False if one.kind is bool else None)
        first = joined.setdefault(one.name, entry)
        if first is not entry:
            least = None if None in (one.least, first.least) else min(one.least or 0, first.least or 0)
            both = f"{first.panel}: {first.help} {panel}: {entry.help}"
            joined[one.name] = replace(first, help=both, least=least)
    return list(joined.values())


def _parameter(one: Option, *, required: bool) -> inspect.Parameter:
    if one.argument is not None:
        info: Any = typer.Argument(metavar=one.argument, help=one.help)
    else:
        flag = f"--{one.name.replace('_', '-')}"
        flags = [f"{flag}/--no-{flag[2:]}" if one.default is True else flag, *filter(None, [one.short])]
        info = typer.Option(*flags, rich_help_panel=one.panel, help=one.help, min=one.least)
    default = inspect.Parameter.empty if required else one.default
    kind: Any = Annotated[one.kind if required or one.default is not None else one.kind | None, info]
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def checked_memory(text: str) -> int:
    """Bytes from ``2GiB``, ``500 MB`` or a plain number."""
    amount = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]i?B|B)?\s*", text, re.IGNORECASE)
    if amount is None:
        raise InputError(f"--memory must be an amount such as 2GiB or 500MB; got {text!r} (the default is 1GiB)")
    unit = (amount[2] or "B").upper()
    number = int(float(amount[1]) * (1024 if "I" in unit else 1000) ** "BKMGT".index(unit[0]))
    if not 2**20 <= number < 2**50:
        raise InputError(f"--memory must be at least 1MiB and below 1024TiB; got {text!r} (the default is 1GiB)")
    return number


def add_shares(table: Table, name: str, values: Any, intervals: Any) -> None:
    table.add_row(name, *(f"{value:.3f}" for value in values))
    table.add_row("  95% interval", *map(short_interval, intervals), style="dim")


def narrow_table(rows: Sequence[Sequence[Any]], *, title: str, texts: int) -> Table:
    """A table that fits a narrow terminal: only the first ``texts`` columns are wrapped, intervals stand below their shares."""
    from rich.table import Table

    table = Table(title=title, box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(rows[0]):
        table.add_column(name, no_wrap=place >= texts)
    for row in rows[1:]:
        table.add_row(*(re.sub(r" ± ?", "\n±", re.sub(r" \(([-.\d]+)\)$", r"\n\1", str(cell))) for cell in row))
    return table
