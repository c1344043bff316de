"""The run folder: nobody else's files, one process at a time, settings that never change silently, and the table."""

import io
import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import flipproof as fp
from flipproof.datasets import topologies
from flipproof.defences.defence import described
from flipproof.fields import from_plain
from flipproof.runs import table
from flipproof.runs.run_folder import STORE_FILE, AttackSettings, CertifySettings, Store, StudySettings, written_run
from flipproof.runs.table import NODE_COLUMNS, certificate_row, columns_of, read_table, write_formatted, write_table
from support.runs import settings_of

SETTINGS = StudySettings("made by hand", {"a": 1})


def test_other_settings_are_named_even_while_another_process_holds_the_run(tmp_path):
    with written_run(tmp_path, SETTINGS):
        with (
            pytest.raises(fp.InputError, match="holds a run with a = 1; asked for a = 2"),
            written_run(tmp_path, StudySettings("made by hand", {"a": 2})),
        ):
            pass
        with pytest.raises(fp.InputError, match="in use by another process"), written_run(tmp_path, SETTINGS):
            pass


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    (tmp_path / ".run.json.12.tmp").write_text("{")
    with written_run(tmp_path, SETTINGS):
        assert not (tmp_path / ".run.json.12.tmp").exists()
    (tmp_path / "run.json").unlink()
    with written_run(tmp_path, SETTINGS) as run:  # killed after the store was made, before run.json was written
        assert run.store.finished() == set()


def test_somebody_elses_folder_is_left_as_it_was(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(fp.InputError, match=r"holds files but no run\.json"), written_run(tmp_path, SETTINGS):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with (
        pytest.raises(fp.InputError, match=r"--out must be a folder; .*thesis\.tex is a file"),
        written_run(tmp_path / "thesis.tex", SETTINGS),
    ):
        pass


@pytest.mark.parametrize("how", ["deleted", "edited"])
def test_evidence_is_not_taken_for_that_of_other_settings(tmp_path, how):
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


@pytest.fixture
def path(tmp_path):
    return tmp_path / STORE_FILE


def test_what_is_finished_is_kept_until_it_is_dropped(path):
    with Store(path, write=True) as store:
        assert store.finished() == set()
        store.finish(3, b"one")
        store.finish(3, b"whole")
        store.finish(7, b"x")
        store.finish("gcn clean", b"{}")  # a job of a study is an item by its name
        store.drop(7)
    for write in (True, False):
        with Store(path, write=write) as again:
            assert (again.finished(), again.load(3)) == ({3, "gcn clean"}, b"whole")
            with pytest.raises(fp.InputError, match=r"holds nothing of graph 7 \(run the same command again\)"):
                again.load(7)
    assert [file.name for file in path.parent.iterdir()] == [STORE_FILE], "one plain file that any tool can open"


def test_a_full_disk_keeps_what_was_committed(path):
    with Store(path, write=True) as store:
        store.finish(0, b"x" * 10_000)
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        store.finish(1, b"x" * 3_000)
        with pytest.raises(OSError, match="no space left on the disk") as error:
            store.finish(2, b"x" * 30_000)
        assert error.value.filename == str(path)
        assert store.finished() == {0, 1}
    with Store(path, write=True) as again:
        assert again.finished() == {0, 1}
        assert again.load(0) == b"x" * 10_000
        again.finish(99, b"y" * 100_000)  # the disk has room again
        assert again.load(99) == b"y" * 100_000


@pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4000])
@pytest.mark.parametrize("write", [True, False])
def test_a_file_of_another_kind_is_one_sentence(path, content, write):
    path.write_bytes(content)
    with pytest.raises(fp.InputError, match=r"evidence\.sqlite cannot be used: .* \(move it away and run the same"):
        Store(path, write=write)
    assert path.read_bytes() == content


def test_a_store_that_is_missing_is_not_made_by_reading(path):
    with pytest.raises(fp.InputError, match="is missing: nothing of the run is finished"):
        Store(path, write=False)
    assert not path.exists()


HOLD = """
import sys, time
from pathlib import Path
from flipproof.runs.run_folder import Store
with Store(Path(sys.argv[1]), write=True) as store:
    store.finish(0, b"x")
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_process_at_a_time_and_a_killed_one_lets_go(path):
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        try:
            for write in (True, False):
                with pytest.raises(fp.InputError, match=f"{path.parent} is in use by another process"):
                    Store(path, write=write)
        finally:
            other.kill()
    with Store(path, write=True) as store:
        assert store.load(0) == b"x", "what was committed is there, without a word of farewell"


GRAPHS = {index: fp.Graph(4, [(0, 1)]) for index in range(100)}


def black_box(graphs):
    return [0] * len(graphs)


SMOOTH = fp.SmoothedClassifier(black_box, fp.EdgeNoise(keep=0.8), num_classes=2)
SAMPLED = settings_of(SMOOTH, GRAPHS, samples=10, seed=3)


def altered(folder, **changes: Any):
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_is_written_comes_back(tmp_path):
    SAMPLED.write(tmp_path)
    assert CertifySettings.read(tmp_path) == SAMPLED
    content = json.loads((tmp_path / "run.json").read_text())
    assert content.keys() == {"format", "command", "settings", "versions"}
    assert (content["format"], content["command"]) == (3, "certify")
    assert content["versions"].keys() == {"flipproof", "numpy", "scipy", "torch"}
    assert content["settings"]["defence"] == described(SMOOTH.defence)
    before = (tmp_path / "run.json").stat().st_mtime_ns
    SAMPLED.write(tmp_path)
    assert (tmp_path / "run.json").stat().st_mtime_ns == before


def test_the_question_is_read_by_its_defence(tmp_path):
    for defence, question in (
        (SMOOTH, {"samples": 10, "seed": 3, "alpha": 0.1, "simultaneous": True}),
        (fp.VotingClassifier(black_box, 3, num_classes=2), {}),
        (fp.EdgeBlindClassifier(black_box, num_classes=2), {}),
    ):
        settings = settings_of(defence, GRAPHS, **question)
        assert settings.request() == from_plain(defence.defence.request, {**question, "graphs": 100})
        assert settings.defence_object == defence.defence
    simultaneous = settings_of(SMOOTH, GRAPHS, samples=10, seed=3, alpha=0.1, simultaneous=True).request()
    assert simultaneous.level == 0.1 / 100, "alpha is shared among the graphs of the run"


def test_a_run_of_another_command_or_version_is_refused(tmp_path):
    SAMPLED.write(tmp_path)
    for kind in (AttackSettings, StudySettings):
        with pytest.raises(fp.InputError, match=f"was not made by flipproof {kind.command}"):
            kind.read(tmp_path)
    altered(tmp_path, format=1)
    (tmp_path / "votes").mkdir()
    with pytest.raises(fp.InputError, match="another version of flipproof"), written_run(tmp_path, SAMPLED):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "votes"], "left as it was"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 3, "settings": 3}', "\ufffe"])
def test_a_file_that_is_no_run_json(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(fp.InputError, match=r"run\.json cannot be read as a run's settings"):
        CertifySettings.read(tmp_path)


def test_settings_that_are_missing_or_unknown_are_named(tmp_path):
    SAMPLED.write(tmp_path)
    content = json.loads((tmp_path / "run.json").read_text())["settings"]
    for odd in ({**content, "colour": "red"}, {key: value for key, value in content.items() if key != "part"}):
        altered(tmp_path, settings=odd)
        with pytest.raises(fp.InputError, match=r"has other settings than flipproof certify writes: (colour|part)"):
            CertifySettings.read(tmp_path)


@pytest.fixture(scope="module")
def certified():
    def many_edges(shown):
        return [int(graph.num_edges > 35) for graph in shown]

    graphs, smooth = topologies(11), fp.SmoothedClassifier(many_edges, fp.EdgeNoise(keep=0.8), num_classes=8)
    return graphs, smooth.certify_all(graphs, samples=40, alpha=0.01, seed=0)


@pytest.mark.parametrize("group", [1, 4, 11, 100])
def test_groups_make_no_difference(certified, tmp_path, monkeypatch, group):
    rows = [
        certificate_row(place, graph, certificate)
        for place, (graph, certificate) in enumerate(zip(*certified, strict=True))
    ]
    monkeypatch.setattr(table, "ROWS_AT_ONCE", group)
    write_table(tmp_path, iter(rows))
    stored = read_table(tmp_path)
    assert len(stored) == len(rows) == 11
    assert list(stored) == rows
    assert [stored[place] for place in (10, 0, -1, 5)] == [rows[place] for place in (10, 0, -1, 5)]
    assert stored[3:7] == rows[3:7]
    with pytest.raises(IndexError):
        stored[11]
    assert columns_of(stored, "radius", "counts") == columns_of(rows, "radius", "counts")
    with pytest.raises(fp.InputError, match="--format must be one of csv, parquet, json; got 'xml'"):
        write_formatted(stored, "xml", io.BytesIO())


def test_a_data_frame_has_a_row_per_certificate(certified):
    graphs, certificates = certified
    frame = fp.to_dataframe(certificates, graphs)
    assert frame["radius"].tolist() == [c.radius for c in certificates]
    assert frame["nodes"].tolist() == [graph.num_nodes for graph in graphs]
    assert frame["label"].tolist() == graphs.labels.tolist()
    abstained = [c.abstains for c in certificates]
    assert frame["predicted"].isna().tolist() == abstained
    assert 0 < sum(abstained) < len(abstained)
    share = fp.certified_accuracy(certificates, graphs.labels, radii=[1])[0]
    assert ((frame["correct"]) & (frame["radius"] >= 1)).mean() == pytest.approx(share)
    assert str(frame["predicted"].dtype) == "Int64"
    assert frame["counts"].tolist() == [list(c.counts) for c in certificates]
    assert np.array(frame["grid"][0]).shape == certificates[0].grid.shape
    assert not set(NODE_COLUMNS) & set(frame.columns), "nobody asked about nodes"
    assert set(frame["p_add"]) == {0.2}
    assert "correct" not in fp.to_dataframe(certificates)
    with pytest.raises(fp.InputError, match="those of the certificates, 11; got 3"):
        fp.to_dataframe(certificates, graphs[:3])
    with pytest.raises(fp.InputError, match="list of certificates; got Graph"):
        fp.to_dataframe(graphs)
