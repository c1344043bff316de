"""``flipproof predict``: labels, radii and abstentions for graphs without labels; files at once, or line by line in a pipe."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.cli.certify_command import checked_memory
from flipproof.cli.defending import defend, required_defence
from flipproof.cli.options import Defended, FeatureOptions, OutputOptions, WorkerOptions, option
from flipproof.datasets.sources import stored_attributes
from flipproof.datasets.unlabelled import Columns, parsed_line, read_unlabelled
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import described
from flipproof.defences.defended import DefendedClassifier
from flipproof.errors import InputError
from flipproof.fields import from_plain
from flipproof.graphs import Graph
from flipproof.models.loading import LoadedModel, load_model
from flipproof.progress import note
from flipproof.runs.table import NODE_COLUMNS

__all__ = ["DEFAULTS", "JOINED", "Options", "run"]

JOINED = ("settings", "asking")
DEFAULTS = {"seed": None}
"""A predictor in use has secret noise: whoever knows the seed can choose graphs against it."""

_STREAM = "-"


@dataclass(frozen=True)
class Options(OutputOptions, WorkerOptions, FeatureOptions, Defended):
    """What ``flipproof predict`` is asked for."""

    files: list[str] = option(
        "Files or folders of graphs; - reads one graph per line as JSON and answers each at once, as JSON.",
        argument="FILE",
    )
    model: str = option("A folder that train wrote, or package.module:factory for your own model.")
    classes: int | None = option("Number of classes of a model of your own.", None, panel="Data", least=2)
    symmetrise: bool = option(
        "Take directed graphs as undirected: an edge where either direction has one.", False, panel="Data"
    )
    defence: str | None = option(
        "Name of the defence; by default what the model was trained for, or what the options speak of.", None
    )
    memory: str = option("Memory that graphs and the model's work on them may take at once, such as 2GiB.", "1GiB")


def run(options: Options) -> int:
    """Answer; one line per graph. The exit code."""
    if _STREAM in options.files and len(options.files) > 1:
        raise InputError("- stands for standard input and is given alone; got files beside it (leave them out)")
    memory, loaded = checked_memory(options.memory), load_model(options.model)
    predictor = _Predictor.of(loaded, options, memory)
    if options.files == [_STREAM]:
        return _answer_lines(predictor, options)
    graphs = _read(predictor, options)
    width = max(len(str(graph.name)) for graph in graphs)
    for graph, certificate in predictor.answers(graphs, options):
        if options.as_json:
            print(json.dumps(predictor.plain(graph, certificate), allow_nan=False), flush=True)
        elif not options.quiet:
            print(f"{str(graph.name).ljust(width)}  {predictor.words(certificate)}", flush=True)
    return 0


def _read(predictor: _Predictor, options: Options) -> list[Graph]:
    """All graphs of all files, before any is answered."""
    raws, left = [], []
    for name in options.files:
        found, unread = read_unlabelled(Path(name).expanduser(), symmetrise=options.symmetrise)
        raws += found
        left += unread
    if not raws:
        raise InputError(f"{options.files[0]} holds no graph (give files with graphs)")
    graphs = [predictor.columns.graph(raw) for raw in raws]
    if left:
        note(f"of no known kind, and not read: {', '.join(left)}", quiet=options.silent)
    predictor.say_unused(quiet=options.silent)
    return graphs


def _answer_lines(predictor: _Predictor, options: Options) -> int:
    """One answer per line of standard input, as soon as it is known; a line that cannot be answered gets its error."""
    if options.defence_values.get("simultaneous"):
        raise InputError(
            "--simultaneous needs to know the number of graphs in advance; got a stream (give files instead)"
        )
    code = 0
    if isinstance(sys.stdin, io.TextIOWrapper):  # a line that is not UTF-8 gets its error, like any other
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            graph = predictor.columns.graph(parsed_line(line, number, symmetrise=options.symmetrise))
            ((_, certificate),) = predictor.answers([graph], options, alone=True)
            answer = predictor.plain(graph, certificate)
        except InputError as error:
            answer, code = {"line": number, "error": str(error)}, 2
        print(json.dumps(answer, allow_nan=False), flush=True)
    predictor.say_unused(quiet=options.quiet)
    return code


@dataclass(frozen=True, eq=False)
class _Predictor:
    """A defended classifier in use."""

    defended: DefendedClassifier
    values: dict[str, Any]
    class_names: list[str]
    columns: Columns

    @classmethod
    def of(cls, loaded: LoadedModel, options: Options, memory: int) -> _Predictor:
        defence, values = required_defence(loaded, options.defence_values, options.defence, quiet=options.silent)
        stored = loaded.metadata
        own = getattr(loaded.model, "num_classes", None)
        classes = options.classes or own or len(stored.get("class_names") or ())
        if not classes:
            raise InputError("the model does not say how many classes it has (give --classes)")
        if loaded.saved is not None and own is not None and classes != own:
            raise InputError(
                f"--classes must be the model's own number of classes, {own}; got {classes} (leave it out)"
            )
        defended = defend(
            loaded,
            defence,
            classes=int(classes),
            features=options.features,
            # train has looked at these columns over all its graphs, which tells more than one graph can
            trust_features=options.trust_features or "data_sha256" in stored,
            memory=memory,
        )
        names = list(stored.get("class_names") or ()) or [str(number) for number in range(defended.num_classes)]
        columns = Columns(stored_attributes(stored) if "attributes" in stored else None)
        return cls(defended, {**DEFAULTS, **values}, names, columns)

    def answers(
        self, graphs: list[Graph], options: Options, *, alone: bool = False
    ) -> Iterator[tuple[Graph, Certificate]]:
        """Every graph with its certificate, in order. The noise is drawn after the graphs are known."""
        request = from_plain(self.defended.defence.request, {**self.values, "graphs": len(graphs)})
        self.defended.check(graphs, request)
        workers = None if alone else options.workers or (1 if len(graphs) < 2 else 0)
        engine = self.defended.engine(workers, quiet=options.silent)
        done: dict[int, Certificate] = {}
        following = 0
        for index, _, certificate in ask_all(
            self.defended, request, dict(enumerate(graphs)), engine=engine, own_model=True
        ):
            assert certificate is not None
            done[index] = certificate
            while following in done:
                yield graphs[following], done.pop(following)
                following += 1

    def plain(self, graph: Graph, certificate: Certificate) -> dict[str, Any]:
        """An answer as plain JSON."""
        kept: tuple[str, ...] = (
            "radius",
            "adds_radius",
            "removes_radius",
            "method",
            "alpha",
            "samples",
            "counts",
            "p_lower",
            "seed",
        )
        kept += () if certificate.node_radii is None else NODE_COLUMNS
        values = certificate.to_dict()
        label = certificate.label
        return {
            "name": graph.name,
            "label": None if label is None else self.class_names[label],
            "class": label,
            "abstains": certificate.abstains,
            **{key: values[key] for key in kept},
            "defence": described(self.defended.defence),
        }

    def words(self, certificate: Certificate) -> str:
        """An answer in words."""
        if certificate.label is None:
            return "abstains: the classes are too close to tell"
        radius = certificate.radius
        flips = f"any {radius} edge flip{'s' * (radius != 1)}" if radius else "no edge flip"
        alone = {"additions": certificate.adds_radius, "removals": certificate.removes_radius}
        more = [f"{count} if only {what}" for what, count in alone.items() if count > radius]
        if certificate.node_radii is not None:
            more.append(str(certificate.node_radii))
        beside = f" ({', '.join(more)})" if more else ""
        return f"{self.class_names[certificate.label]}, certified against {flips}{beside}"

    def say_unused(self, *, quiet: bool) -> None:
        """Name what the graphs had and the model does not read."""
        if self.columns.unused:
            note(f"attributes that the model does not read: {', '.join(sorted(self.columns.unused))}", quiet=quiet)
