"""``flipproof attack``: the smallest attack found on every graph, beside its certificate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flipproof.attacks import by_name
from flipproof.certificates.metrics import share_interval
from flipproof.certificates.vote_share import checked_alpha
from flipproof.checks import checked_samples, checked_seed
from flipproof.cli.defending import chosen_data, chosen_defence, defend, num_classes, refuse_other_classes
from flipproof.cli.options import FolderOptions, ModelDataOptions, OutputOptions, Result, WorkerOptions, add_shares
from flipproof.defences.changed_nodes import changeable
from flipproof.defences.defence import described
from flipproof.engines import cores
from flipproof.fields import option
from flipproof.models.loading import load_model
from flipproof.progress import note
from flipproof.report.templates import rendered
from flipproof.report.wording import attack_targets, wording
from flipproof.runs.attacking import AttackWork, attack_into, certified_radii
from flipproof.runs.certifying import features_shown
from flipproof.runs.run_folder import AttackSettings, written_run
from flipproof.studies.search_space import undefended

_CERTIFIED = "certified (lower bound)"


@dataclass(frozen=True, kw_only=True)
class AttackOptions(OutputOptions, WorkerOptions, ModelDataOptions, FolderOptions):
    JOINED = ("settings",)

    budget: int = option("Largest number of edge flips to try.", 5, least=0)
    changes: int = option(
        "Largest number of node labels, or bits of the node features, to change beside the flips.", 0, least=0
    )
    attacks: str = option("Names joined by commas: random, greedy, exhaustive, gradient, known.", "greedy")
    samples: int = option("Number of noisy copies per candidate, where the defence samples.", 128)
    confirm_samples: int = option("Number of fresh noisy copies that confirm a success.", 10_000)
    alpha: float = option("Probability that a false success is confirmed.", 0.001)
    seed: int = option("Seed of the search.", 0)
    adds: bool = option("Whether edges may be added.", True, panel="Attacker")
    removes: bool = option("Whether edges may be removed.", True, panel="Attacker")
    undefended: str | None = option("A model trained without a defence, attacked beside.", None, panel="Compare")
    certificates: Path | None = option("A run of certify with the same model.", None, panel="Compare")


def attack(options: AttackOptions) -> Result:
    names = [name.strip() for name in options.attacks.split(",")]
    for name in names:
        by_name(name)
    constraints: dict[str, int] = {"adds": options.adds, "removes": options.removes}
    if options.changes:
        constraints["changes"] = options.changes
    sampling: dict[str, Any] = {
        "samples": checked_samples(options.samples),
        "confirm_samples": checked_samples(options.confirm_samples, "confirm_samples"),
        "alpha": checked_alpha(options.alpha),
        "seed": checked_seed(options.seed),
    }
    loaded = load_model(options.model, task=options.task)
    chosen = chosen_data(loaded, options)
    classes, base, attacked = num_classes(loaded, options.classes, chosen.dataset), undefended().kind(), {}
    other = None if options.undefended is None else load_model(options.undefended)
    if other is not None:
        refuse_other_classes(other, chosen.dataset, "--undefended")
        attacked["undefended"] = defend(other, base, num_classes(other, None, chosen.dataset))
    attacked["base"] = defend(loaded, base, classes, options)
    defence = chosen_defence(loaded, options.defence_values, options.defence)
    if defence is not None and not wording(defence.name).baseline:
        attacked["defended"] = defend(loaded, defence, classes, options)
    for graph in chosen.graphs.values() if options.changes else ():
        changeable(graph)  # refuses others
    settings = AttackSettings(
        data=chosen.dataset.name,
        data_sha256=chosen.fingerprint,
        graphs=list(chosen.graphs),
        graphs_seed=chosen.graphs_seed,
        model_sha256=loaded.identity,
        undefended_sha256=None if other is None else other.identity,
        defence=described(attacked["defended"].defence) if "defended" in attacked else None,
        features=features_shown(attacked["base"], chosen.graphs.values(), loaded.features(options.features)),
        budget=options.budget,
        attacks=names,
        constraints=constraints,
        **sampling,
    )
    radii = None if options.certificates is None else certified_radii(options.certificates, settings)
    work = AttackWork(attacked, chosen.graphs, options.budget, names, {**sampling, **constraints})
    engine = attacked["base"].engine(options.workers or min(cores(), len(chosen.graphs)), quiet=options.silent)
    with written_run(options.out, settings) as held:
        for sentence in chosen.notes:
            note(sentence, quiet=options.silent)
        summary = attack_into(held, work, radii=radii, engine=engine, quiet=options.silent)
    return Result(summary, _shown(summary, attack_targets(None if defence is None else defence.name)))


def _shown(summary: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Any]:
    from rich.table import Table

    beside = f", r flips beside up to {summary['changes']} changed labels or bits" if "changes" in summary else ""
    head = [f"r = {r}" for r in range(summary["budget"] + 1)]
    table = Table("accuracy", *head, title=f"{summary['graphs']} {summary['task']}{beside}")
    rows = {f"after attacks on {words[role]}": values for role, values in summary["accuracy_under_attack"].items()}
    if "certified_accuracy" in summary:
        rows[_CERTIFIED] = summary["certified_accuracy"]
    for name, values in rows.items():
        graphs = summary.get("certified_graphs", 0) if name == _CERTIFIED else summary["graphs"]
        ends = share_interval([round(value * graphs) for value in values], graphs)
        add_shares(table, name, values, zip(*ends, strict=True))
    yield table
    yield from rendered("attacked.txt", **summary).splitlines()
