"""The voting defence behind ``flipproof certify --defence voting``: votes on sub-graphs, in a folder that can be continued."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flipproof.commands.progress import note, progress
from flipproof.commands.sources import naming_the_graph
from flipproof.errors import InputError
from flipproof.graphs import Graph
from flipproof.noise.groups import HASH_VERSION, EdgeGroups
from flipproof.runs.folder import Run
from flipproof.runs.table import Row, derive_row

if TYPE_CHECKING:
    from flipproof.attacks.command import AttackOptions
    from flipproof.commands.certify import CertifyOptions
    from flipproof.models import SavedModel
    from flipproof.defences.voting import VotingClassifier

__all__ = ["DEFENCES", "VotingJob", "chosen_defence", "load_groups", "voting_settings"]

DEFENCES = ("smoothing", "voting")


def chosen_defence(saved: SavedModel | None, options: CertifyOptions | AttackOptions, defence: str | None) -> str:
    """The defence that was asked for, else the one that the options speak of, else the one that the model was trained for."""
    trained_for = "voting" if saved is not None and saved.metadata.get("groups") else "smoothing"
    noisy = any(value is not None for value in (options.keep, options.add, options.remove))
    if defence is None:
        defence = "voting" if options.groups is not None else "smoothing" if noisy else trained_for
    if defence not in DEFENCES:
        raise InputError(f"--defence must be one of {', '.join(DEFENCES)}; got {defence!r} (smoothing is the default)")
    if defence == "voting" and noisy:
        raise InputError("voting has no noise; got --keep, --add or --remove (leave them out)")
    if defence == "smoothing" and options.groups is not None:
        raise InputError(f"smoothing has no groups; got --groups {options.groups} (leave it out, or --defence voting)")
    return defence


def load_groups(saved: SavedModel | None, groups: int | None) -> EdgeGroups:
    """The groups of the option, else those that the model was trained with."""
    stored = None if saved is None else saved.metadata.get("groups")
    if groups is None and stored is None:
        raise InputError(
            "the model was not trained on sub-graphs, so the number of groups must be given (for instance --groups 5)"
        )
    return EdgeGroups(stored if groups is None else groups)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class VotingJob:
    """Everything found and checked; no vote cast yet."""

    voting: VotingClassifier
    graphs: dict[int, Graph]
    settings: dict[str, Any]
    own_model: bool
    edge_blind_accuracy: float | None

    def sample(self, run: Run, options: CertifyOptions) -> None:
        """Cast the votes that are missing."""
        groups = self.voting.groups
        complaints = run.tidy()
        missing, broken = run.pending_groups(self.graphs, groups=groups, num_classes=self.voting.num_classes)
        for complaint in complaints + broken:
            note(complaint, quiet=options.quiet)
        done = len(self.graphs) - len(missing)
        if done and missing:
            note(f"continuing {run.folder}: {done} of {len(self.graphs)} graphs are done", quiet=options.silent)
        with progress("voting", len(self.graphs), unit="graphs", quiet=options.silent, done=done) as advance:
            for index in missing:
                with naming_the_graph(index, own_model=self.own_model, asked="sub-graphs"):
                    votes = self.voting.vote_checked(self.graphs[index])
                run.save(index, votes)
                advance(1)

    def rows(self, run: Run) -> list[Row]:
        """The table of certificates, from the stored votes."""
        return [derive_row(index, run.load_group_votes(index), run.settings) for index in sorted(self.graphs)]


def voting_settings(voting: VotingClassifier) -> dict[str, Any]:
    """What a run of this defence was asked for, beside data and model."""
    return {
        "defence": "voting",
        "groups": voting.groups.count,
        "hash_key": voting.groups.key,
        "hash_version": HASH_VERSION,
        "p_add": None,
        "p_remove": None,
        "noise": None,
        "samples": voting.groups.count,
        "votes": voting.groups.count,
        "seed": None,
        "alpha": 0.0,
        "simultaneous": False,
        "method": "voting",
    }
