"""The run folder: nobody else's files, one process at a time, leftovers of a killed one removed."""

from __future__ import annotations

from pathlib import Path

import pytest

import flipproof as fp
from flipproof.runs.run_folder import open_run, written_run
from flipproof.runs.settings import StudySettings

SETTINGS = StudySettings("made by hand", {"a": 1})


def test_a_run_is_begun_continued_and_read(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    with written_run(folder, SETTINGS) as run:
        run.store.finish("job", b"x")
    with written_run(folder, SETTINGS) as run:
        assert run.store.load("job") == b"x"
    with open_run(folder, StudySettings) as run:
        assert (run.settings, run.store.finished()) == (SETTINGS, {"job"})
    assert sorted(path.name for path in folder.iterdir()) == ["evidence.sqlite", "run.json"]


def test_other_settings_are_named_even_while_another_process_holds_the_run(tmp_path: Path) -> None:
    with written_run(tmp_path, SETTINGS):
        with (
            pytest.raises(fp.InputError, match="holds a run with a = 1; asked for a = 2"),
            written_run(tmp_path, StudySettings("made by hand", {"a": 2})),
        ):
            pass
        with pytest.raises(fp.InputError, match="in use by another process"), written_run(tmp_path, SETTINGS):
            pass


def test_what_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".run.json.12.tmp").write_text("{")
    with written_run(tmp_path, SETTINGS):
        assert not (tmp_path / ".run.json.12.tmp").exists()
    (tmp_path / "run.json").unlink()
    with written_run(tmp_path, SETTINGS) as run:  # killed after the store was made, before run.json was written
        assert run.store.finished() == set()


def test_somebody_elses_folder_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(fp.InputError, match=r"holds files but no run\.json"), written_run(tmp_path, SETTINGS):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with (
        pytest.raises(fp.InputError, match=r"--out must be a folder; .*thesis\.tex is a file"),
        written_run(tmp_path / "thesis.tex", SETTINGS),
    ):
        pass


def test_a_folder_of_the_version_before_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "votes").mkdir()
    (tmp_path / "run.json").write_text('{"settings": {"a": 1}}')
    with pytest.raises(fp.InputError, match="another version of flipproof"), written_run(tmp_path, SETTINGS):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "votes"]


@pytest.mark.parametrize("how", ["deleted", "edited"])
def test_evidence_is_not_taken_for_that_of_other_settings(tmp_path: Path, how: str) -> None:
    with written_run(tmp_path, SETTINGS) as run:
        run.store.finish("job", b"x")
    stored = tmp_path / "run.json"
    if how == "deleted":
        stored.unlink()
    else:
        stored.write_text(stored.read_text().replace('"a": 1', '"a": 2'))
    with (
        pytest.raises(fp.InputError, match="holds a run with a = 1; asked for a = 2"),
        written_run(tmp_path, StudySettings("made by hand", {"a": 2})),
    ):
        pass
