"""The command line. Heavy imports happen inside the commands, so that help answers at once.

Exit codes: 0 done; 1 a fault of flipproof, or a run that ``verify`` found altered; 2 input that cannot be used, or a disk that
is full; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from flipproof import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    help="Makes graph classifiers provably robust against edge flips.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_MODEL, _RUN = "A model and its robustness", "What a run holds"
_COMPARE, _PAPER = "Choosing and comparing", "The paper and the mathematics"

Keep = Annotated[
    float | None,
    typer.Option(
        "--keep", help="Probability that a node pair keeps its state (the paper's beta).", rich_help_panel="Noise"
    ),
]
Add = Annotated[
    float | None,
    typer.Option("--add", help="Probability that an empty pair gains an edge.", rich_help_panel="Noise"),
]
Remove = Annotated[
    float | None, typer.Option("--remove", help="Probability that an edge is lost.", rich_help_panel="Noise")
]
Groups = Annotated[
    int | None,
    typer.Option("--groups", help="Sub-graphs of every graph, for voting.", rich_help_panel="Voting"),
]
Root = Annotated[str | None, typer.Option("--root", help="Folder of the TU data sets.", rich_help_panel="Data")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch a TU data set that is not there.", rich_help_panel="Data")
]
Features = Annotated[
    str | None,
    typer.Option(
        "--features",
        help="Node features, computed on every noisy graph: own, degree, one-hot-degree, constant, several joined by +, or "
        "package.module:function.",
        rich_help_panel="Data",
    ),
]
TrustFeatures = Annotated[
    bool,
    typer.Option(
        "--trust-features", help="Accept node features that look like the clean degrees.", rich_help_panel="Data"
    ),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of options; what is typed here prevails.", rich_help_panel="Output"),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON only.", rich_help_panel="Output")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel="Output")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flipproof {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Makes graph classifiers provably robust against edge flips, and says how many flips each prediction withstands."""


@app.command(rich_help_panel=_PAPER)
def reproduce(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything that is made; run again to continue.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, well under a minute; its figures mean little.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of data, split, weights and noise.")] = 0,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at a time; by default one a core.")] = None,
    config: Config = None,
) -> None:
    """The paper, end to end: data, training, certification, the three figures, its claims measured.

    [bold]Example:[/bold]  flipproof reproduce --out results/reproduce
    """
    from rich.console import Console

    from flipproof.noise import checked_seed
    from flipproof.studies.reproduce.command import reproduce as run
    from flipproof.studies.reproduce.experiment import Settings

    checked_seed(seed)
    settings = Settings.quick(seed=seed) if quick else Settings(seed=seed)
    again = f"flipproof reproduce --out {shlex.quote(str(out))}" + " --quick" * quick + f" --seed {seed}" * (seed != 0)
    raise typer.Exit(run(out, settings, workers=workers, console=Console(), again=again))


@app.command(rich_help_panel=_MODEL)
def train(
    data: Annotated[
        str,
        typer.Option(help="topologies, a TU name (with --root), or a folder with labels.csv.", rich_help_panel="Data"),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the model; run the same command again to continue.")],
    model: Annotated[
        str,
        typer.Option(
            help="gcn, gin, sage, gat, diffpool; edge-blind (edge-blind:gat for another than gin); wl-svm, a kernel machine."
        ),
    ] = "gin",
    keep: Keep = None,
    add: Add = None,
    remove: Remove = None,
    groups: Groups = None,
    renumber: Annotated[
        bool,
        typer.Option(
            "--renumber", help="Hash the nodes under new random numbers in every step.", rich_help_panel="Voting"
        ),
    ] = False,
    epochs: Annotated[int, typer.Option(help="Passes over the training graphs.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the weights, the order of graphs and the training noise.")] = 0,
    root: Root = None,
    download: Download = False,
    features: Features = None,
    trust_features: TrustFeatures = False,
    data_seed: Annotated[int, typer.Option(help="Makes the topologies.", rich_help_panel="Data")] = 0,
    split_seed: Annotated[int, typer.Option(help="Of the split.", rich_help_panel="Data")] = 0,
    test: Annotated[
        float, typer.Option(help="Share of graphs kept for certification.", rich_help_panel="Data")
    ] = 0.3333,
    validation: Annotated[
        float, typer.Option(help="Share of graphs that choose the epoch; 0 keeps the last.", rich_help_panel="Data")
    ] = 0.1,
    learning_rate: Annotated[float, typer.Option(rich_help_panel="Training")] = 0.01,
    batch_size: Annotated[int, typer.Option(rich_help_panel="Training")] = 32,
    copies: Annotated[
        int | None,
        typer.Option(
            help="Noisy versions of every graph: by default 1 a step, 8 for wl-svm.", rich_help_panel="Training"
        ),
    ] = None,
    objective: Annotated[
        str,
        typer.Option(
            help="samples: every noisy copy right; majority: most copies of every graph (with --copies 64, from noise).",
            rich_help_panel="Training",
        ),
    ] = "samples",
    corrected: Annotated[
        bool,
        typer.Option("--corrected", help="Let gin correct for the flips that it expects.", rich_help_panel="Training"),
    ] = False,
    consistency: Annotated[
        float,
        typer.Option(help="Weight of agreement among the copies; needs two.", rich_help_panel="Training"),
    ] = 0.0,
    class_weights: Annotated[
        bool, typer.Option("--class-weights", help="Weigh every class alike.", rich_help_panel="Training")
    ] = False,
    hidden: Annotated[int | None, typer.Option(help="Width of the layers.", rich_help_panel="Training")] = None,
    layers: Annotated[
        int | None, typer.Option(help="Number of layers, or iterations of wl-svm.", rich_help_panel="Training")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a model that stands in --out.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """A base classifier, trained under the noise (or on the sub-graphs) that it will be certified with.

    [bold]Example:[/bold]  flipproof train --data MUTAG --root data --add 0.01 --remove 0.3 --out models/mutag
    """
    from flipproof.commands.sources import DataSource, optional_noise
    from flipproof.commands.train import TrainOptions
    from flipproof.commands.train import train as run

    source = DataSource(data, root, download, data_seed, split_seed, test, validation)
    options = TrainOptions(
        source=source,
        model=model,
        out=out,
        noise=optional_noise(keep, add, remove),
        groups=groups,
        renumber=renumber,
        features=features,
        epochs=epochs,
        seed=seed,
        learning_rate=learning_rate,
        batch_size=batch_size,
        copies=copies,
        objective=objective,
        corrected=corrected,
        consistency=consistency,
        class_weights=class_weights,
        hidden=hidden,
        layers=layers,
        replace=replace,
        trust_features=trust_features,
        as_json=as_json,
        quiet=quiet,
        again=shlex.join(["flipproof", *sys.argv[1:]]),
    )
    raise typer.Exit(run(options))


@app.command(rich_help_panel=_MODEL)
def certify(
    model: Annotated[str, typer.Option(help="A folder that train wrote, or package.module:factory for your own.")],
    out: Annotated[Path, typer.Option(help="Run folder; run the same command again to continue.")],
    samples: Annotated[
        str, typer.Option(help="Noisy copies of every graph; auto: as many as the answer needs.")
    ] = "10000",
    max_samples: Annotated[
        int | None, typer.Option(help="With auto: no more than so many, by default 100000.", rich_help_panel="Auto")
    ] = None,
    target_radius: Annotated[
        int | None,
        typer.Option(help="With auto: stop when this radius is certified or out of reach.", rich_help_panel="Auto"),
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(help="With auto: stop when the share of votes is known so well.", rich_help_panel="Auto"),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Failure probability of each certificate.")] = 0.001,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Let alpha hold for all graphs at once: each gets its share of it.")
    ] = False,
    method: Annotated[str, typer.Option(help="influence, votes or paper.")] = "influence",
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    defence: Annotated[
        str | None, typer.Option(help="smoothing or voting; by default what the model was trained for.")
    ] = None,
    groups: Groups = None,
    edge_blind: Annotated[
        str | None, typer.Option(help="A folder of train --model edge-blind, for the line to beat.")
    ] = None,
    keep: Keep = None,
    add: Add = None,
    remove: Remove = None,
    data: Annotated[
        str | None,
        typer.Option(help="By default the model's own; else as for train.", rich_help_panel="Data"),
    ] = None,
    root: Root = None,
    download: Download = False,
    features: Features = None,
    trust_features: TrustFeatures = False,
    classes: Annotated[
        int | None, typer.Option(help="Number of classes of a model of your own.", rich_help_panel="Data")
    ] = None,
    part: Annotated[str, typer.Option(help="test, validation, train or all.", rich_help_panel="Data")] = "test",
    graphs: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many of them.", rich_help_panel="Data")
    ] = None,
    data_seed: Annotated[
        int | None, typer.Option(help="Makes the topologies; by default the model's.", rich_help_panel="Data")
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="Of the split; by default the model's.", rich_help_panel="Data")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes at a time; by default one a core.", rich_help_panel="Where"),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray for a cluster (needs flipproof[ray]).", rich_help_panel="Where")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster that runs; by default one is started here.", rich_help_panel="Where"),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Most that noisy copies and the model's work on them may take at once, such as 2GiB.")
    ] = "1GiB",
    as_json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Certify a data set's test graphs. Noise or groups, features, data and split are the model's unless given.

    Voting over sub-graphs is deterministic: --samples, --alpha, --method and --seed are smoothing's.

    [bold]Example:[/bold]  flipproof certify --model models/mutag --samples 10000 --out runs/mutag
    """
    # before numpy is loaded: a worker a core is enough, each with one thread
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from flipproof.commands.certify import CertifyOptions, asked_samples
    from flipproof.commands.certify import certify as run

    options = CertifyOptions(
        model=model,
        out=out,
        data=data,
        root=root,
        download=download,
        keep=keep,
        add=add,
        remove=remove,
        features=features,
        classes=classes,
        part=part,
        graphs=graphs,
        samples=asked_samples(samples, max_samples=max_samples, target_radius=target_radius, precision=precision),
        alpha=alpha,
        simultaneous=simultaneous,
        method=method,
        seed=seed,
        defence=defence,
        groups=groups,
        edge_blind=edge_blind,
        workers=workers,
        engine=engine,
        address=address,
        data_seed=data_seed,
        split_seed=split_seed,
        trust_features=trust_features,
        memory=memory,
        as_json=as_json,
        quiet=quiet,
        again=shlex.join(["flipproof", *sys.argv[1:]]),
    )
    raise typer.Exit(run(options))


@app.command(rich_help_panel=_MODEL)
def attack(
    model: Annotated[str, typer.Option(help="A folder that train wrote, or package.module:factory for your own.")],
    out: Annotated[Path, typer.Option(help="Run folder; run the same command again to continue.")],
    budget: Annotated[int, typer.Option(min=0, help="Most edge flips.")] = 5,
    attacks: Annotated[
        str, typer.Option(help="Names joined by commas: random, greedy, beam, genetic, gradient.")
    ] = "greedy",
    samples: Annotated[int, typer.Option(help="Noisy copies a candidate, for the smoothed classifier.")] = 128,
    confirm_samples: Annotated[int, typer.Option(help="Fresh noisy copies that confirm a success.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="Probability that a false success is confirmed.")] = 0.001,
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    adds: Annotated[bool, typer.Option(help="Whether edges may be added.", rich_help_panel="Attacker")] = True,
    removes: Annotated[bool, typer.Option(help="Whether edges may be removed.", rich_help_panel="Attacker")] = True,
    keep_connected: Annotated[
        bool, typer.Option("--keep-connected", help="No new connected component.", rich_help_panel="Attacker")
    ] = False,
    allow_isolated: Annotated[
        bool, typer.Option(help="Whether a node may lose its last edge.", rich_help_panel="Attacker")
    ] = True,
    per_node: Annotated[
        int | None, typer.Option(min=0, help="Most flips at any one node.", rich_help_panel="Attacker")
    ] = None,
    undefended: Annotated[
        str | None, typer.Option(help="A model trained without noise, attacked beside.", rich_help_panel="Compare")
    ] = None,
    edge_blind: Annotated[
        str | None, typer.Option(help="An edge-blind model, for the line to beat.", rich_help_panel="Compare")
    ] = None,
    certificates: Annotated[
        Path | None, typer.Option(help="A run of certify with the same model.", rich_help_panel="Compare")
    ] = None,
    groups: Groups = None,
    keep: Keep = None,
    add: Add = None,
    remove: Remove = None,
    data: Annotated[
        str | None,
        typer.Option(help="By default the model's own; else as for train.", rich_help_panel="Data"),
    ] = None,
    root: Root = None,
    download: Download = False,
    features: Features = None,
    classes: Annotated[
        int | None, typer.Option(min=2, help="Number of classes of a model of your own.", rich_help_panel="Data")
    ] = None,
    part: Annotated[str, typer.Option(help="test, validation, train or all.", rich_help_panel="Data")] = "test",
    graphs: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many of them.", rich_help_panel="Data")
    ] = None,
    data_seed: Annotated[
        int | None, typer.Option(help="Makes the topologies; by default the model's.", rich_help_panel="Data")
    ] = None,
    split_seed: Annotated[
        int | None, typer.Option(help="Of the split; by default the model's.", rich_help_panel="Data")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at a time; by default one a core.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """The smallest attack found on every graph, against the model and its defended (smoothed or voting) version.

    [bold]Example:[/bold]  flipproof attack --model models/mutag --budget 5 --certificates runs/mutag --out runs/attack
    """
    from flipproof.attacks.command import AttackOptions
    from flipproof.attacks.command import attack as run

    options = AttackOptions(
        model=model,
        out=out,
        budget=budget,
        attacks=tuple(name.strip() for name in attacks.split(",")),
        data=data,
        root=root,
        download=download,
        keep=keep,
        add=add,
        remove=remove,
        groups=groups,
        features=features,
        part=part,
        graphs=graphs,
        data_seed=data_seed,
        split_seed=split_seed,
        undefended=undefended,
        edge_blind=edge_blind,
        certificates=certificates,
        constraints={
            "adds": adds,
            "removes": removes,
            "keep_connected": keep_connected,
            "allow_isolated": allow_isolated,
            "per_node": per_node,
        },
        samples=samples,
        confirm_samples=confirm_samples,
        alpha=alpha,
        seed=seed,
        classes=classes,
        workers=workers,
        as_json=as_json,
        quiet=quiet,
        again=shlex.join(["flipproof", *sys.argv[1:]]),
    )
    raise typer.Exit(run(options))


@app.command(rich_help_panel=_RUN)
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders that certify wrote; several are compared.", metavar="RUN")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write to; by default the run's own, for several a folder comparison in the first run's."
        ),
    ] = None,
    edge_blind: Annotated[
        Path | None,
        typer.Option(
            help="A run of an edge-blind model on the same graphs: the line to beat.", rich_help_panel="Compare"
        ),
    ] = None,
    attack: Annotated[
        list[Path] | None,
        typer.Option(help="A folder that attack wrote, to mark what it found.", rich_help_panel="Compare"),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Figures (SVG, PDF, PNG, with their numbers) and one self-contained page, report.html, that opens offline.

    [bold]Example:[/bold]  flipproof report runs/mutag --attack runs/attack
    """
    from flipproof.commands.report import report as write

    raise typer.Exit(write(runs, out=out, edge_blind=edge_blind, attacks=attack or [], as_json=as_json, quiet=quiet))


@app.command(rich_help_panel=_RUN)
def export(
    run: Annotated[Path, typer.Argument(help="A folder that certify wrote.", metavar="RUN")],
    kind: Annotated[str, typer.Option("--format", help="csv, parquet or json.")] = "csv",
    out: Annotated[Path | None, typer.Option(help="File to write; by default stdout.")] = None,
    config: Config = None,
) -> None:
    """The table of a run's certificates, in the order of the data set.

    [bold]Example:[/bold]  flipproof export runs/mutag --format csv > mutag.csv
    """
    from flipproof.commands.export import export as write

    raise typer.Exit(write(run, kind=kind, out=out))


@app.command(rich_help_panel=_RUN)
def verify(
    run: Annotated[Path, typer.Argument(help="A folder that certify wrote.", metavar="RUN")],
    as_json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Derive every certificate again from the stored votes and compare: exit code 1 if one was altered.

    [bold]Example:[/bold]  flipproof verify runs/mutag
    """
    from flipproof.runs.verification import verify as check

    raise typer.Exit(check(run, as_json=as_json, quiet=quiet))


@app.command(rich_help_panel=_COMPARE)
def tune(
    data: Annotated[
        str,
        typer.Option(help="topologies, a TU name (with --root), or a folder with labels.csv.", rich_help_panel="Data"),
    ],
    out: Annotated[Path, typer.Option(help="Folder for everything that is made; run again to continue.")],
    radius: Annotated[int | None, typer.Option(min=0, help="Flips of any kind to be withstood.")] = None,
    adds: Annotated[int | None, typer.Option(min=0, help="Or: additions to be withstood ...")] = None,
    removes: Annotated[int | None, typer.Option(min=0, help="... together with so many removals.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="A network to try; give it several times.")] = None,
    keep: Annotated[
        list[float] | None,
        typer.Option(help="A symmetric noise to try; give it several times.", rich_help_panel="Candidates"),
    ] = None,
    noise: Annotated[
        list[str] | None,
        typer.Option(help="A noise ADD,REMOVE to try; give it several times.", rich_help_panel="Candidates"),
    ] = None,
    groups: Annotated[
        list[int] | None,
        typer.Option(help="Voting with so many groups; give it several times.", rich_help_panel="Candidates"),
    ] = None,
    samples: Annotated[int, typer.Option(help="Noisy copies of every graph.")] = 2_000,
    alpha: Annotated[float, typer.Option(help="Failure probability of each certificate.")] = 0.001,
    method: Annotated[str, typer.Option(help="influence, votes or paper.")] = "influence",
    seed: Annotated[int, typer.Option(help="Of the noise.")] = 0,
    root: Root = None,
    download: Download = False,
    features: Features = None,
    data_seed: Annotated[int, typer.Option(help="Makes the topologies.", rich_help_panel="Data")] = 0,
    split_seed: Annotated[int, typer.Option(help="Of the split, and of training.", rich_help_panel="Data")] = 0,
    test: Annotated[
        float, typer.Option(help="Share of graphs kept for certification; not looked at.", rich_help_panel="Data")
    ] = 0.3333,
    validation: Annotated[
        float, typer.Option(help="Share of graphs on which the choice is made.", rich_help_panel="Data")
    ] = 0.2,
    train_graphs: Annotated[
        int | None, typer.Option(min=1, help="Only so many training graphs.", rich_help_panel="Data")
    ] = None,
    graphs: Annotated[
        int | None, typer.Option(min=1, help="Only so many validation graphs.", rich_help_panel="Data")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Passes over the training graphs.", rich_help_panel="Training")] = 200,
    learning_rate: Annotated[float, typer.Option(rich_help_panel="Training")] = 0.01,
    batch_size: Annotated[int, typer.Option(rich_help_panel="Training")] = 32,
    copies: Annotated[
        int, typer.Option(help="Noisy versions of every graph of a step.", rich_help_panel="Training")
    ] = 1,
    consistency: Annotated[
        float, typer.Option(help="Weight of agreement among the copies; needs two.", rich_help_panel="Training")
    ] = 0.0,
    class_weights: Annotated[
        bool, typer.Option("--class-weights", help="Weigh every class alike.", rich_help_panel="Training")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at a time; by default one a core.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Choose noise, network and defence for the attack you want to withstand, on validation graphs.

    [bold]Example:[/bold]  flipproof tune --data MUTAG --root data --radius 1 --out results/tune
    """
    from flipproof.studies.tuning import TuneOptions
    from flipproof.studies.tuning import tune as run
    from flipproof.commands.sources import DataSource

    options = TuneOptions(
        source=DataSource(data, root, download, data_seed, split_seed, test, validation),
        models=tuple(model or ["gin"]),
        out=out,
        radius=radius,
        adds=adds,
        removes=removes,
        keeps=tuple(keep or ()),
        pairs=tuple(noise or ()),
        groups=tuple(groups or ()),
        features=features,
        training={
            "epochs": epochs,
            "learning_rate": learning_rate,
            "batch_size": batch_size,
            "copies": copies,
            "consistency": consistency,
            "class_weights": class_weights,
        },
        train_graphs=train_graphs,
        graphs=graphs,
        samples=samples,
        alpha=alpha,
        method=method,
        seed=seed,
        workers=workers,
        as_json=as_json,
        quiet=quiet,
        again=shlex.join(["flipproof", *sys.argv[1:]]),
    )
    raise typer.Exit(run(options))


@app.command(rich_help_panel=_COMPARE)
def benchmark(
    config: Annotated[Path, typer.Argument(help="A TOML file: data sets, models, defences.", metavar="CONFIG")],
    out: Annotated[Path, typer.Option(help="Folder for everything that is made; run again to continue.")],
    root: Root = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at a time; by default one a core.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Data sets, models and defences compared: certified accuracy over several splits, beside the edge-blind line.

    [bold]Example:[/bold]  flipproof benchmark benchmarks/real.toml --root data --out results/benchmark
    """
    from flipproof.studies.benchmark.command import BenchmarkOptions
    from flipproof.studies.benchmark.command import benchmark as run

    again = shlex.join(["flipproof", *sys.argv[1:]])
    options = BenchmarkOptions(config, out, root, workers, as_json=as_json, quiet=quiet, again=again)
    raise typer.Exit(run(options))


@app.command(rich_help_panel=_PAPER)
def radius(
    p_lower: Annotated[float, typer.Option("--p-lower", help="Lower bound on the top class's share of votes.")],
    keep: Keep = None,
    add: Add = None,
    remove: Remove = None,
    p_upper: Annotated[
        float | None, typer.Option("--p-upper", help="Upper bound on every other class's share.")
    ] = None,
    as_json: Json = False,
    config: Config = None,
) -> None:
    """The mathematics alone, no model: how many edge flips a share of votes withstands.

    [bold]Example:[/bold]  flipproof radius --keep 0.9 --p-lower 0.99
    """
    from flipproof.certificates.vote_share import radius as certified_radius
    from flipproof.noise import EdgeNoise

    noise = EdgeNoise(keep=keep, add=add, remove=remove)
    found = certified_radius(p_lower, noise, p_upper)
    if as_json:
        shares = {"p_lower": p_lower, "p_upper": p_upper, "p_add": noise.p_add, "p_remove": noise.p_remove}
        typer.echo(json.dumps({"radius": found, **shares}))
    elif found == -1:
        typer.echo("nothing is certified: the top class is not sure to win even without an attack")
    else:
        typer.echo(f"radius {found}: no attack of at most {found} edge flip{'s' * (found != 1)} changes the prediction")


def main() -> None:
    """The entry point: bad input ends in one sentence and exit code 2."""
    from flipproof.errors import InputError

    try:
        code = app(_arguments(), prog_name="flipproof", standalone_mode=False)
    except (InputError, ImportError) as error:
        if isinstance(error, ImportError) and "pip install" not in str(error):
            raise  # a fault, not a missing extra
        _end(str(error))
    except OSError as error:
        _end(_in_words(error))
    except Exception as error:
        # the parser's own complaints, of options that it cannot read
        if not hasattr(error, "format_message"):
            raise
        sentence = error.format_message().rstrip(".")
        if not sentence:  # no command was given, and the help has been shown
            sys.exit(0)
        command = getattr(getattr(error, "ctx", None), "command_path", None) or "flipproof"
        _end(f"{sentence}{_typed(error)} (see {command} --help)")
    sys.exit(code if isinstance(code, int) else 0)


def _arguments() -> list[str]:
    """What was typed, with the options of a config file."""
    typed = sys.argv[1:]
    if not any(argument.startswith("--config") for argument in typed):
        return typed
    from flipproof.commands.config import expanded

    return expanded(typed, typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def _typed(error: Exception) -> str:
    """What was typed for the option that the parser complains of."""
    options = getattr(getattr(error, "param", None), "opts", [])
    typed = [value for option, value in itertools.pairwise(sys.argv) if option in options]
    return f"; got {typed[-1]!r}" if typed else ""


def _end(sentence: str) -> NoReturn:
    print(f"flipproof: {' '.join(sentence.split())}", file=sys.stderr)
    sys.exit(2)


def _in_words(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return (
            f"no space left on the disk{f' for {error.filename}' if error.filename else ''}; what is finished is kept (free some "
            "space, and run the same command again)"
        )
    return f"{error.strerror or error}: {error.filename or ''} (check the path and its permissions)"
