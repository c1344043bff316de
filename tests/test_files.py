"""Files and folders are written whole or not at all."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from flipproof import InputError
from flipproof.checks import checked_count, checked_integer, checked_samples, checked_seed
from flipproof.files import write_bytes, write_folder, write_json, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path, durable):
    path = tmp_path / "new" / "deep" / "file"
    for content in (b"first", b"", b"second"):
        write_bytes(path, content, durable=durable)
        assert path.read_bytes() == content
    assert names(path.parent) == ["file"]


def test_text_and_json(tmp_path):
    write_text(tmp_path / "text", "größer\n")
    assert (tmp_path / "text").read_bytes() == "größer\n".encode()
    write_json(tmp_path / "json", {"b": [1, None], "a": "x"})
    assert (tmp_path / "json").read_text() == '{\n  "b": [\n    1,\n    null\n  ],\n  "a": "x"\n}\n'
    for bad in (float("nan"), object()):
        with pytest.raises((ValueError, TypeError)):
            write_json(tmp_path / "json", bad)
    assert json.loads((tmp_path / "json").read_text()) == {"b": [1, None], "a": "x"}
    assert names(tmp_path) == ["json", "text"]


@pytest.mark.parametrize("step", ["open", "fsync", "replace"])
def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch, step):
    write_bytes(tmp_path / "file", b"old")

    def fail(*arguments: object, **named: object):
        raise OSError("No space left on device")

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "file", b"new")
    monkeypatch.undo()
    assert names(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_a_folder_is_replaced_with_all_its_content(tmp_path):
    path = tmp_path / "parent" / "folder"
    write_folder(path, {"a": b"1", "b": b"2"})
    assert names(path) == ["a", "b"]
    write_folder(path, {"b": b"3"})
    assert names(path) == ["b"]
    assert (path / "b").read_bytes() == b"3"
    assert names(path.parent) == ["folder"]


@pytest.mark.parametrize("failing", range(5))
def test_a_folder_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch, failing):
    """Each of the writer's renames fails in turn: two files, the old folder aside, the new one into its place."""
    write_folder(tmp_path / "folder", {"a": b"old", "b": b"old"})
    calls = iter(range(99))
    originals = {name: getattr(Path, name) for name in ("rename", "replace")}

    def failing_once(name):
        def step(self, target):
            if next(calls) == failing:
                raise OSError("No space left on device")
            return originals[name](self, target)

        return step

    for name in originals:
        monkeypatch.setattr(Path, name, failing_once(name))
    if failing < 4:
        with pytest.raises(OSError, match="No space left"):
            write_folder(tmp_path / "folder", {"a": b"new", "b": b"new"})
    else:
        write_folder(tmp_path / "folder", {"a": b"new", "b": b"new"})
    content = b"old" if failing < 4 else b"new"
    assert names(tmp_path) == ["folder"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()} == {"a": content, "b": content}


KILLED = """
import itertools, sys
from pathlib import Path
from flipproof.files import write_bytes, write_folder
place = Path(sys.argv[1])
for number in itertools.count():
    content = bytes([number % 251]) * 300_000
    write_bytes(place / "file", content, durable=False)
    if number == 0:
        write_folder(place / "folder", {"a": content, "b": content})
        print("started", flush=True)
    write_folder(place / f"folder-{number}", {"a": content, "b": content})
"""


def test_a_killed_writer_leaves_whole_files_or_none(tmp_path):
    for attempt in range(5):
        place = tmp_path / str(attempt)
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(place)], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"started\n"
        time.sleep(0.02 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        content = (place / "file").read_bytes()
        assert content == content[:1] * 300_000
        for folder in place.glob("folder*"):
            assert names(folder) == ["a", "b"]
            assert len({path.read_bytes() for path in folder.iterdir()}) == 1
            assert (folder / "a").stat().st_size == 300_000
        shutil.rmtree(place)


@pytest.mark.parametrize("waited", [True, False], ids=["gone", "zombie"])
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, waited):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended, subprocess.Popen(["sleep", "60"]) as running:
        if waited:
            ended.wait()
        else:
            os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        for process in (ended.pid, running.pid):
            (tmp_path / f".folder.{process}.tmp").mkdir()
            (tmp_path / f".folder.{process}.tmp" / f".a.{process}.tmp").write_bytes(b"half")
            (tmp_path / f".folder.{process}.old").mkdir()
            (tmp_path / f".file.{process}.tmp").write_bytes(b"half")
        (tmp_path / ".folder.note.tmp").write_bytes(b"the user's own")
        write_folder(tmp_path / "folder", {"a": b"whole"})
        write_bytes(tmp_path / "file", b"whole")
        running.kill()
        kept = {".folder.note.tmp", f".folder.{running.pid}.tmp", f".folder.{running.pid}.old"}
        assert set(names(tmp_path)) == {"file", "folder", f".file.{running.pid}.tmp", *kept}


WIDTHS, GROUPS = (2, 3, 2**70, np.int32(2), np.uint8(7)), (1, np.int64(10))
NO_GROUPS = 0, 11, 1.0, True, "1", None
NO_WIDTHS = (1, -2, 2.0, "2", True, None, [2], np.float64(2), np.bool_(True), np.array([2]))


@pytest.mark.parametrize(
    ("checked", "good", "bad", "sentence"),
    [
        (lambda n: checked_count(n, "width", 2, "say 8"), WIDTHS, NO_WIDTHS, "width must be an integer of at least 2"),
        (
            lambda n: checked_integer(n, "groups", 1, 10, "say 8"),
            GROUPS,
            NO_GROUPS,
            "groups must be an integer from 1 to 10",
        ),
        (checked_samples, [np.int64(5)], [0], "samples must be an integer of at least 1"),
        (checked_seed, [0, 2**63 - 1], [-1, 2**63, 1.0, "0", True], "seed must be an integer from 0 to 2**63 - 1"),
    ],
)
def test_integers(checked, good, bad, sentence):
    for value in good:
        assert checked(value) == value
        assert type(checked(value)) is int
    for value in bad:
        with pytest.raises(InputError) as error:
            checked(value)
        assert str(error.value).startswith(f"{sentence}; got {value!r} (")


def test_fresh_seeds_differ():
    assert len({checked_seed(None) for _ in range(20)}) == 20
