"""Votes: stored and read back whole, or refused; and certificates from them by every method."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flipproof import EdgeNoise, Graph, InputError, Votes, certify_counts, certify_votes, radius
from flipproof.certificates.vote_share import label_pvalue, lower_bound, upper_bound
from flipproof.noise import BLOCK, STREAM_VERSION, SampleStream
from support.certificates import votes_of

GRAPH = Graph(6, [(0, 1), (1, 2), (4, 5)], np.ones((6, 2)), 1, frozen=[(0, 5)], name="one")
NOISE = EdgeNoise(add=0.05, remove=0.3)


def cast(samples=1500, **changes: Any):
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
def saved(tmp_path):
    path = tmp_path / "one.npz"
    cast().save(path)
    return path


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
def test_inconsistent_votes_are_refused(changes, words):
    with pytest.raises(InputError, match=words):
        cast(**changes)


@pytest.mark.parametrize("samples", [1, BLOCK - 1, BLOCK, BLOCK + 1, 1500])
def test_first_is_as_if_no_more_had_been_cast(samples):
    assert cast().first(samples) == cast(samples)
    assert len(cast().first(samples).checksums) == -(-samples // BLOCK)


@pytest.mark.parametrize(("samples", "words"), [(1501, "at most the 1500"), (0, "at least 1"), (1.5, "integer")])
def test_first_refuses_what_is_not_there(samples, words):
    with pytest.raises(InputError, match=words):
        cast().first(samples)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.int64])
def test_round_trip(tmp_path, kind):
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


def test_every_damaged_byte_is_refused_or_harmless(saved):
    whole, votes, refused = saved.read_bytes(), cast(), 0
    for position in range(len(whole)):
        saved.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            assert Votes.load(saved) == votes
        except InputError:
            refused += 1
    assert refused > len(whole) // 2


def rewritten(path, change):
    """The same file with some arrays changed, in good order otherwise."""
    with np.load(path) as stored:
        arrays = dict(stored)
    change(arrays)
    content = io.BytesIO()
    np.savez(content, **arrays)
    path.write_bytes(content.getvalue())


def described(*keys: str, value):
    def change(arrays):
        description = json.loads(arrays["description"].tobytes())
        place = description
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
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
        (described("format", value=1), "format 1, this flipproof reads format 3"),
        (
            described("versions", "noise", value=STREAM_VERSION + 1),
            f"version {STREAM_VERSION + 1} of the noise, .* {STREAM_VERSION}",
        ),
        (described("graph", "num_nodes", value=7), "altered"),
        (described("graph", "label", value="cat"), "label"),
        (described("plain", "num_classes", value="3"), "num_classes"),
        (described("plain", "noise.add", value=-0.1), "add must lie in"),
        (described("plain", "noise.other", value=5), "not a whole file"),
        (described("plain", "checksums", value=None), "not a whole file"),
    ],
)
def test_altered_files_are_refused(saved, change, words):
    rewritten(saved, change)
    with pytest.raises(InputError, match=words) as error:
        Votes.load(saved)
    assert saved.name in str(error.value)


def test_an_unchanged_rewrite_is_accepted(saved):
    rewritten(saved, lambda arrays: None)
    assert Votes.load(saved) == cast()


class _Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_pickles_are_refused_and_not_run(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rewritten(saved, lambda arrays: arrays.update(labels=np.array([_Bomb()] * 3, dtype=object)))
    with pytest.raises(InputError, match="pickle"):
        Votes.load(saved)
    np.array([_Bomb()], dtype=object).dump(saved)
    with pytest.raises(InputError, match="not a whole file of sampled votes"):
        Votes.load(saved)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("content", [b"labels,1,2", b"", b"PK\x03\x04"])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(InputError, match="foreign is not a whole file of sampled votes"):
        Votes.load(path)


EVEN_NOISE = EdgeNoise(keep=0.8)
PATH = Graph(12, [(node, node + 1) for node in range(11)])


def cast_labels(labels, graph=PATH, noise=EVEN_NOISE, num_classes=3):
    return votes_of(labels, graph, noise, num_classes)


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_votes_and_their_counts_give_the_same_certificate(method):
    votes = cast_labels([1] * 960 + [0] * 30 + [2] * 10)
    by_graph = certify_counts(votes.counts, EVEN_NOISE, method=method, graph=PATH)
    certificate = certify_votes(votes, method=method)
    assert certificate.seed == 0
    assert certificate.to_dict() | {"seed": None} == by_graph.to_dict()
    assert certificate.label == 1
    assert certificate.radius >= 1


@pytest.mark.parametrize("counts", [[900, 100], [900, 60, 40], [20, 960, 10, 10, 0, 0, 0, 0]])
@pytest.mark.parametrize("alpha", [0.001, 0.05])
def test_bounds_of_the_votes_method_spend_alpha_once(counts, alpha):
    """Label test .1, share of the top class .8 (two classes .9), .1 for the largest of the others."""
    certificate = certify_counts(counts, EVEN_NOISE, alpha=alpha)
    top, many = max(counts), len(counts) > 2
    share = lower_bound(top, 1000, failure_prob=(0.8 if many else 0.9) * alpha)
    rival = upper_bound(sorted(counts)[-2], 1000, failure_prob=0.1 * alpha)
    assert certificate.p_lower == share
    assert certificate.p_upper == (min(rival, 1 - share) if many else 1 - share)
    assert certificate.radius == radius(float(share), EVEN_NOISE, float(rival) if many else None)


@pytest.mark.parametrize("method", ["votes", "influence"])
@pytest.mark.parametrize(("factor", "label"), [(1.001, 1), (0.999, None)])
def test_label_is_named_only_if_its_test_says_so(method, factor, label):
    """A tenth of alpha is the test's: just above the p-value the label is named, just below it is not."""
    alpha = 10 * factor * float(label_pvalue(600, 400))
    certificate = certify_votes(cast_labels([1] * 600 + [0] * 400, num_classes=2), method=method, alpha=alpha)
    assert certificate.p_lower > 0.5
    assert certificate.label == label


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_abstaining(method):
    for counts in ([500, 500], [1, 0], [0, 0, 7], [510, 490]):
        certificate = certify_counts(counts, EVEN_NOISE, method=method)
        assert (certificate.label, certificate.radius, certificate.votes_radius, certificate.grid.shape) == (
            None,
            -1,
            -1,
            (0, 0),
        )
        assert certificate.abstains


@pytest.mark.parametrize("method", ["votes", "paper"])
def test_radius_is_at_most_the_number_of_slots(method):
    for graph in (Graph(1, []), Graph(2, []), Graph(3, [(0, 1)]), Graph(4, [], frozen=[(0, 1), (0, 2), (0, 3)])):
        certificate = certify_counts([100_000, 0], EdgeNoise(keep=0.6), method=method, graph=graph)
        assert certificate.radius == graph.num_slots == certificate.num_slots
        assert certificate.grid.shape == (graph.max_adds + 1, graph.max_removes + 1)
        assert certificate.grid.all()
    unbounded = certify_counts([100_000, 0], EdgeNoise(keep=0.6), method=method)
    assert unbounded.radius == {"votes": 89, "paper": 90}[method]


def test_the_sparse_samplers_inexactness_is_charged():
    ring = Graph(100, [(node, (node + 1) % 100) for node in range(100)])
    noise = EdgeNoise(add=0.002, remove=0.3)
    votes = cast_labels([0] * 1000, ring, noise)
    discrepancy = votes.stream().discrepancy
    assert discrepancy > 0
    certificate = certify_votes(votes, alpha=0.01, method="votes")
    assert certificate.alpha == 0.01
    plain = certify_counts(votes.counts, noise, alpha=0.01, graph=ring)
    assert certificate.p_lower <= plain.p_lower
    with pytest.raises(InputError, match="used up by the sampler's inexactness"):
        certify_votes(votes, alpha=500 * discrepancy, method="votes")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([10], "at least two"),
        ([], "at least two"),
        (5, "one number per class"),
        ([[5, 5]], "one number per class"),
        ([5.0, 5.0], "pass integers"),
        ([-1, 5], "pass integers"),
        ([0, 0], "at least one in all"),
        (["a", "b"], "pass integers"),
    ],
)
def test_bad_counts(counts, words):
    with pytest.raises(InputError, match=words):
        certify_counts(counts, EVEN_NOISE)


def test_other_bad_arguments():
    with pytest.raises(InputError, match=r"method must be one of .*votes.*'guess'"):
        certify_counts([10, 0], EVEN_NOISE, method="guess")
    with pytest.raises(InputError, match="method must be one of"):
        certify_votes(cast_labels([0] * 10), method="guess")
    with pytest.raises(InputError, match="counts do not hold them"):
        certify_counts([10, 0], EVEN_NOISE, method="influence")
    with pytest.raises(InputError, match="expected Votes; got list"):
        certify_votes([10, 0])
    for alpha in (0, 1, None):
        with pytest.raises(InputError, match="alpha must lie in"):
            certify_counts([10, 0], EVEN_NOISE, alpha=alpha)
        with pytest.raises(InputError, match="alpha must lie in"):
            certify_votes(cast_labels([0] * 10), alpha=alpha, method="votes")
    with pytest.raises(InputError, match="expected a graph"):
        certify_counts([10, 0], EVEN_NOISE, graph=5)
