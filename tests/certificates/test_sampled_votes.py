"""Votes: stored and read back whole, or refused."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipproof import EdgeNoise, Graph, InputError, Votes, certify_votes
from flipproof.certificates.sampled_votes import checked_samples
from flipproof.noise import BLOCK, STREAM_VERSION, SampleStream

GRAPH = Graph(6, [(0, 1), (1, 2), (4, 5)], np.ones((6, 2)), 1, frozen=[(0, 5)], name="one")
NOISE = EdgeNoise(add=0.05, remove=0.3)


def cast(samples: int = 1500, **changes: Any) -> Votes:
    stream = SampleStream(GRAPH, NOISE, seed=3)
    labels = (stream.flips(0, samples)[:, 2]).astype(np.uint8)
    fields = {
        "labels": labels,
        "graph": GRAPH,
        "noise": NOISE,
        "num_classes": 3,
        "seed": 3,
        "checksums": tuple(stream.checksums(samples)),
    }
    return Votes(**(fields | changes))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "one.npz"
    cast().save(path)
    return path


# ---- the object --------------------------------------------------------------------------------------------


def test_counts_include_classes_without_a_vote() -> None:
    votes = cast()
    assert votes.counts.tolist() == [int((votes.labels == c).sum()) for c in range(3)]
    assert votes.counts[2] == 0
    assert len(votes) == 1500
    assert repr(votes).startswith("Votes(samples=1500, counts=[")


def test_frozen() -> None:
    votes = cast()
    with pytest.raises(dataclasses.FrozenInstanceError):
        votes.seed = 4  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        votes.labels[0] = 1
    with pytest.raises(TypeError):
        hash(votes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checksums": ("a",)}, "one checksum per block of 1024.*got 1 for 1500"),
        ({"checksums": ("a", "b", "c")}, "got 3 for 1500"),
        ({"labels": np.full(1500, 3, dtype=np.uint8)}, r"0\.\.2; got 3"),
        ({"labels": np.full(1500, -1)}, r"0\.\.2; got -1"),
        ({"labels": np.zeros(1500)}, "integers.*float64"),
        ({"labels": np.zeros((1500, 1), dtype=np.uint8)}, "one per sample"),
        ({"num_classes": 1}, "at least 2; got 1"),
        ({"num_classes": 2.0}, "at least 2; got 2.0"),
    ],
)
def test_inconsistent_votes_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        cast(**changes)


@pytest.mark.parametrize("samples", [1, BLOCK - 1, BLOCK, BLOCK + 1, 1500])
def test_first_is_as_if_no_more_had_been_cast(samples: int) -> None:
    assert cast().first(samples) == cast(samples)
    assert len(cast().first(samples).checksums) == -(-samples // BLOCK)


@pytest.mark.parametrize(("samples", "words"), [(1501, "at most the 1500"), (0, "at least 1"), (1.5, "integer")])
def test_first_refuses_what_is_not_there(samples: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        cast().first(samples)


@pytest.mark.parametrize("samples", [0, -1, 1.0, True, "10", None])
def test_bad_numbers_of_samples(samples: Any) -> None:
    with pytest.raises(InputError, match="samples must be an integer of at least 1"):
        checked_samples(samples)


def test_equality() -> None:
    votes, labels = cast(), cast().labels.copy()
    labels[7] = 2
    assert votes == cast()
    assert votes != cast(labels=labels)
    assert votes != cast(seed=4)
    assert votes != cast(noise=EdgeNoise(keep=0.9))
    assert votes != cast(graph=GRAPH.replaced(label=0))
    assert votes != "votes"


def test_flips_are_made_again_from_the_votes() -> None:
    votes = cast()
    stream = votes.stream()
    assert tuple(stream.checksums(len(votes))) == votes.checksums
    assert np.array_equal(stream.flips(0, 1500)[:, 2], votes.labels)


def test_votes_of_another_generator_are_refused() -> None:
    votes = cast(stream_version=STREAM_VERSION + 1)
    for use in (votes.stream, lambda: certify_votes(votes)):
        with pytest.raises(InputError, match=f"version {STREAM_VERSION + 1}.*version {STREAM_VERSION}.*sample again"):
            use()  # type: ignore[operator]


# ---- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.int64])
def test_round_trip(tmp_path: Path, kind: type) -> None:
    votes = cast(labels=cast().labels.astype(kind))
    votes.save(tmp_path / "any.name")
    again = Votes.load(tmp_path / "any.name")
    assert again == votes
    assert again.labels.dtype == kind
    assert (again.graph.label, again.graph.name) == (1, "one")
    assert again.graph.frozen.tolist() == [[0, 5]]
    assert again.noise == NOISE
    assert again.graph.node_features is None, "no certificate reads them"
    assert certify_votes(again) == certify_votes(votes)
    assert [path.name for path in tmp_path.iterdir()] == ["any.name"], "no temporary file is left"


def test_version_is_stored(tmp_path: Path) -> None:
    cast(stream_version=7).save(tmp_path / "old.npz")
    old = Votes.load(str(tmp_path / "old.npz"))
    assert old.stream_version == 7
    with pytest.raises(InputError, match="version 7"):
        old.stream()


def test_saving_replaces_whole_or_not_at_all(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        cast(100).save(saved)
    assert Votes.load(saved) == cast()
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_missing_file_is_not_called_broken(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Votes.load(tmp_path / "none.npz")


def test_every_truncation_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in range(0, len(whole), 7):
        saved.write_bytes(whole[:length])
        with pytest.raises(InputError, match=f"{saved.name} is not a whole file of sampled votes"):
            Votes.load(saved)


def test_every_damaged_byte_is_refused_or_harmless(saved: Path) -> None:
    whole, votes, refused = saved.read_bytes(), cast(), 0
    for position in range(len(whole)):
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            assert Votes.load(saved) == votes
        except InputError:
            refused += 1
    assert refused > len(whole) // 2


def rewritten(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """The same file with some arrays changed, in good order otherwise."""
    with np.load(path) as stored:
        arrays = dict(stored)
    change(arrays)
    content = io.BytesIO()
    np.savez(content, **arrays)
    path.write_bytes(content.getvalue())


def described(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(arrays: dict[str, Any]) -> None:
        description = json.loads(arrays["description"].tobytes()) | changes
        arrays["description"] = np.frombuffer(json.dumps(description).encode(), dtype=np.uint8)

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda arrays: arrays.update(edges=np.array([[0, 1], [1, 2], [3, 5]])), "altered.*edges"),
        (lambda arrays: arrays.update(edges=arrays["edges"][:2]), "altered.*edges"),
        (lambda arrays: arrays.update(frozen=np.array([[0, 4]])), "altered.*edges"),
        (lambda arrays: arrays.update(edges=np.array([[0, 9]])), r"0\.\.5; got 9"),
        (lambda arrays: arrays.update(labels=np.full(1500, 9, dtype=np.uint8)), r"0\.\.2; got 9"),
        (lambda arrays: arrays.update(labels=arrays["labels"][:100]), "2 for 100 votes"),
        (lambda arrays: arrays.update(labels=np.zeros(1500)), "float64"),
        (lambda arrays: arrays.pop("labels"), "labels"),
        (lambda arrays: arrays.pop("description"), "description"),
        (lambda arrays: arrays.update(description=np.frombuffer(b"{", np.uint8)), "not a whole file"),
        (lambda arrays: arrays.update(description=np.frombuffer(b"\xff", np.uint8)), "not a whole file"),
        (lambda arrays: arrays.update(description=np.frombuffer(b"[]", np.uint8)), "not a whole file"),
        (described(format=1), "format 1, this flipproof reads format 2"),
        (described(num_nodes=7), "altered"),
        (described(num_classes="3"), "num_classes"),
        (described(add_threshold=-5), "add must lie in"),
        (described(checksums=None), "not a whole file"),
        (described(label="cat"), "label"),
    ],
)
def test_altered_files_are_refused(saved: Path, change: Callable[[dict[str, Any]], object], words: str) -> None:
    rewritten(saved, change)
    with pytest.raises(InputError, match=words) as error:
        Votes.load(saved)
    assert saved.name in str(error.value)


def test_an_unchanged_rewrite_is_accepted(saved: Path) -> None:
    rewritten(saved, described())
    assert Votes.load(saved) == cast()


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("exploded"),))


def test_pickles_are_refused_and_not_run(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rewritten(saved, lambda arrays: arrays.update(labels=np.array([_Bomb()] * 3, dtype=object)))
    with pytest.raises(InputError, match="pickle"):
        Votes.load(saved)
    np.array([_Bomb()], dtype=object).dump(saved)
    with pytest.raises(InputError, match="not a whole file of sampled votes"):
        Votes.load(saved)
    assert not (tmp_path / "exploded").exists()


def archive(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def single_array() -> bytes:
    content = io.BytesIO()
    np.save(content, np.ones(3))
    return content.getvalue()


def empty_zip() -> bytes:
    content = io.BytesIO()
    zipfile.ZipFile(content, "w").close()
    return content.getvalue()


@pytest.mark.parametrize(
    "content", [archive(x=np.ones(3)), archive(), single_array(), b"labels,1,2", b"", empty_zip(), b"PK\x03\x04"]
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(InputError, match="foreign is not a whole file of sampled votes"):
        Votes.load(path)
