"""``flipproof predict``: labels, radii and abstentions for graphs without labels; files at once, or line by line in a pipe."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flipproof.certificates.certificate import Certificate
from flipproof.cli.defending import defend, num_classes, required_defence
from flipproof.cli.options import ModelOptions, OutputOptions, WorkerOptions
from flipproof.datasets.folder import Columns, parsed_line, read_unlabelled
from flipproof.datasets.sources import stored_attributes
from flipproof.defences.asking import ask_all
from flipproof.defences.defence import described
from flipproof.errors import InputError
from flipproof.fields import from_plain, option
from flipproof.graphs import Graph
from flipproof.models.loading import load_model
from flipproof.progress import note
from flipproof.report.wording import shown_settings
from flipproof.runs.table import NODE_COLUMNS

_STREAM = "-"
_KEPT = ("radius", "adds_radius", "removes_radius", "method", "alpha", "samples", "counts", "p_lower", "seed")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(OutputOptions, WorkerOptions, ModelOptions):
    JOINED = ("settings", "asking")
    # a predictor in use has secret noise: whoever knows the seed can choose graphs against it
    DEFAULTS = {"seed": None}  # noqa: RUF012

    files: list[str] = option(
        "Files or folders of graphs; - reads one graph per line as JSON, and answers in JSON.", argument="FILE"
    )


def predict(options: PredictOptions) -> int:
    if _STREAM in options.files and len(options.files) > 1:
        raise InputError("- stands for standard input and is given alone; got files beside it (leave them out)")
    predictor = _Predictor(options)
    if options.files == [_STREAM]:
        return _answer_lines(predictor)
    raws, left = list[Any](), list[str]()
    for name in options.files:
        read, unread = read_unlabelled(Path(name).expanduser(), symmetrise=options.symmetrise)
        raws += read
        left += unread
    if not raws:
        raise InputError(f"{options.files[0]} holds no graph (give files with graphs)")
    graphs = [predictor.columns.graph(raw) for raw in raws]  # all are read before any is answered
    if left:
        note(f"of no known kind, and not read: {', '.join(left)}", quiet=options.silent)
    predictor.say_unused(quiet=options.silent)
    width = max(len(str(graph.name)) for graph in graphs)
    for graph, certificate in predictor.answers(graphs):
        if options.json:
            print(json.dumps(predictor.plain(graph, certificate), allow_nan=False), flush=True)
        elif not options.quiet:
            print(f"{str(graph.name).ljust(width)}  {predictor.words(certificate)}", flush=True)
    return 0


def _answer_lines(predictor: _Predictor) -> int:
    """One answer per line of standard input, as soon as it is known; a line that cannot be answered gets its error."""
    code, options = 0, predictor.options
    if options.defence_values.get("simultaneous"):
        raise InputError(
            "--simultaneous needs to know the number of graphs in advance; got a stream (give files instead)"
        )
    if isinstance(sys.stdin, io.TextIOWrapper):  # a line that is not UTF-8 gets its error, like any other
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="surrogateescape")
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            graph = predictor.columns.graph(parsed_line(line, number, symmetrise=options.symmetrise))
            ((_, certificate),) = predictor.answers([graph], alone=True)
            answer = predictor.plain(graph, certificate)
        except InputError as error:
            answer, code = {"line": number, "error": str(error)}, 2
        print(json.dumps(answer, allow_nan=False), flush=True)
    predictor.say_unused(quiet=options.quiet)
    return code


class _Predictor:
    """A defended classifier in use."""

    def __init__(self, options: PredictOptions) -> None:
        loaded = load_model(options.model)
        defence, values = required_defence(loaded, options)
        classes, stored = num_classes(loaded, options.classes), loaded.metadata
        # train has looked at these columns over all its graphs, which tells more than one graph can
        options = replace(options, trust_features=options.trust_features or "data_sha256" in stored)
        self.options, self.values = options, {**options.DEFAULTS, **values}
        self.class_names = list(stored.get("class_names") or map(str, range(classes)))
        self.columns = Columns(stored_attributes(stored) if "attributes" in stored else None)
        self.defended = defend(loaded, defence, classes, options)

    def answers(self, graphs: list[Graph], *, alone: bool = False) -> Iterator[tuple[Graph, Certificate]]:
        """Every graph with its certificate, in order. The noise is drawn after the graphs are known."""
        request = from_plain(self.defended.defence.request, {**self.values, "graphs": len(graphs)})
        self.defended.check(graphs, request)
        workers = None if alone else self.options.workers or (1 if len(graphs) < 2 else 0)
        engine = self.defended.engine(workers, quiet=self.options.silent)
        numbered, done, following = dict(enumerate(graphs)), dict[int, Any](), 0
        for index, _, certificate in ask_all(self.defended, request, numbered, engine=engine):
            done[index] = certificate
            while following in done:
                yield graphs[following], done.pop(following)
                following += 1

    def plain(self, graph: Graph, certificate: Certificate) -> dict[str, Any]:
        values, label = certificate.to_dict(), certificate.label
        kept = [*_KEPT, *(NODE_COLUMNS if certificate.node_radii is not None else ())]
        kept += () if certificate.feature_radius is None else ("feature_radius", "axes", "grid")
        return {
            "name": graph.name,
            "label": None if label is None else self.class_names[label],
            "class": label,
            "abstains": certificate.abstains,
            **{key: values[key] for key in kept},
            "defence": shown_settings(described(self.defended.defence)),
        }

    def words(self, certificate: Certificate) -> str:
        if certificate.label is None:
            return "abstains: the classes are too close to tell"
        alone = {"additions": certificate.adds_radius, "removals": certificate.removes_radius}
        more = [f"{count} if only {what}" for what, count in alone.items() if count > certificate.radius]
        if certificate.feature_radius is not None:
            more.append(f"{certificate.feature_words} if no edge flips")
        if certificate.node_radii is not None:
            more.append(str(certificate.node_radii))
        named = certificate.headline.replace(f"class {certificate.label}", self.class_names[certificate.label], 1)
        return named + (f" ({', '.join(more)})" if more else "")

    def say_unused(self, *, quiet: bool) -> None:
        if self.columns.unused:
            note(f"attributes that the model does not read: {', '.join(sorted(self.columns.unused))}", quiet=quiet)
