"""Settings of a run: written once, read in one place, and never silently changed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import flipproof as fp
from flipproof.defences.defence import described
from flipproof.fields import from_plain
from flipproof.runs.run_folder import AttackSettings, CertifySettings, StudySettings
from support.runs import settings_of

GRAPHS = {index: fp.Graph(4, [(0, 1)]) for index in range(100)}


def black_box(graphs: list[fp.Graph]) -> list[int]:
    return [0] * len(graphs)


SMOOTH = fp.SmoothedClassifier(black_box, fp.EdgeNoise(keep=0.8), num_classes=2)
SETTINGS = settings_of(SMOOTH, GRAPHS, samples=10, seed=3)


def altered(folder: Path, **changes: Any) -> None:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path)
    assert CertifySettings.read(tmp_path) == SETTINGS
    content = json.loads((tmp_path / "run.json").read_text())
    assert content.keys() == {"format", "command", "settings", "versions"}
    assert (content["format"], content["command"]) == (3, "certify")
    assert content["versions"].keys() == {"flipproof", "numpy", "scipy", "torch"}
    assert content["settings"]["defence"] == described(SMOOTH.defence)
    before = (tmp_path / "run.json").stat().st_mtime_ns
    SETTINGS.write(tmp_path)
    assert (tmp_path / "run.json").stat().st_mtime_ns == before


def test_the_question_is_read_by_its_defence(tmp_path: Path) -> None:
    for defence, asked in (
        (SMOOTH, {"samples": 10, "seed": 3, "alpha": 0.1, "simultaneous": True}),
        (fp.VotingClassifier(black_box, 3, num_classes=2), {}),
        (fp.EdgeBlindClassifier(black_box, num_classes=2), {}),
    ):
        settings = settings_of(defence, GRAPHS, **asked)
        assert settings.request() == from_plain(defence.defence.request, {**asked, "graphs": 100})
        assert settings.defence_object == defence.defence
    simultaneous = settings_of(SMOOTH, GRAPHS, samples=10, seed=3, alpha=0.1, simultaneous=True).request()
    assert simultaneous.level == 0.1 / 100, "alpha is shared among the graphs of the run"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"part": "test"}, "part = 'all'; asked for part = 'test'"),
        ({"question": SETTINGS.question | {"samples": 11}}, "samples = 10; asked for samples = 11"),
        ({"question": SETTINGS.question | {"seed": 4}}, "seed = 3; asked for seed = 4"),
        ({"defence": {"name": "voting", "groups": 3}}, "defence = 'smoothing'; asked for defence = 'voting'"),
        ({"defence": SETTINGS.defence | {"add": 0.5}}, r"add = 0\.\d+; asked for add = 0\.5"),
        ({"graphs": list(range(99))}, r"graphs = \[0, 1, .*\.\.\.; asked"),
    ],
)
def test_another_run_is_refused_by_the_name_of_the_difference(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    SETTINGS.write(tmp_path)
    with pytest.raises(fp.InputError, match=f"holds a run with {words}"):
        dataclasses.replace(SETTINGS, **changes).write(tmp_path)
    assert CertifySettings.read(tmp_path) == SETTINGS


def test_a_run_of_another_command_or_version_is_refused(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path)
    for kind in (AttackSettings, StudySettings):
        with pytest.raises(fp.InputError, match=f"was not made by flipproof {kind.command}"):
            kind.read(tmp_path)
    altered(tmp_path, format=1)
    for use in (lambda: CertifySettings.read(tmp_path), lambda: SETTINGS.write(tmp_path)):
        with pytest.raises(fp.InputError, match="holds a run of another version of flipproof"):
            use()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 3, "settings": 3}', "\ufffe"])
def test_a_file_that_is_no_run_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(fp.InputError, match=r"run\.json cannot be read as a run's settings"):
        CertifySettings.read(tmp_path)


def test_settings_that_are_missing_or_unknown_are_named(tmp_path: Path) -> None:
    SETTINGS.write(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())["settings"]
    for odd in ({**content, "colour": "red"}, {key: value for key, value in content.items() if key != "part"}):
        altered(tmp_path, settings=odd)
        with pytest.raises(fp.InputError, match=r"has other settings than flipproof certify writes: (colour|part)"):
            CertifySettings.read(tmp_path)


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(fp.InputError, match="is not a run folder: there is no such folder"):
        CertifySettings.read(tmp_path / "gone")
    with pytest.raises(fp.InputError, match=r"is not a run folder: it has no run\.json .*--out of flipproof certify"):
        CertifySettings.read(tmp_path)
