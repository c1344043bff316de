"""``certify`` killed with SIGKILL at random moments, and on a full disk: it continues, and ends with the same bytes."""

import itertools
import random

import pytest

from support.command_line import OWN_MODEL, write_graphs
from support.forked import Server
from support.runs import stored

CERTIFY = ["certify", "--model", "own:make", "--data", "graphs", "--part", "all"]
DEFENCES = {  # options, and seconds that the model takes per graph
    "smoothing": (["--keep", 0.8, "--samples", 3000, "--method", "votes"], 2e-5),
    "voting": (["--groups", 5, "--depth", 0], 0.002),
    "edge-blind": (["--defence", "edge-blind"], 0.03),
}
NUMBERS = itertools.count()  # of runs, for their names


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The command line in a user's folder with graphs and a model."""
    folder = tmp_path_factory.mktemp("user")
    write_graphs(folder / "graphs", count=8)
    (folder / "own.py").write_text(OWN_MODEL)
    running = Server(folder)
    for name, (options, _) in DEFENCES.items():  # what is loaded and compiled once is no part of a run's time
        assert running(*CERTIFY, *options, "--out", f"first {name}").code == 0
    return running


def kept(run):
    """Graphs that are finished."""
    if not (run / "evidence.sqlite").exists():
        return set()
    try:
        return {row[0] for row in stored(run)}
    except ValueError:  # killed before the tables were made
        return set()


def killed_and_continued(server, defence, workers, kills, generator):
    """Kill it several times at random moments, then let it end; how many kills hit a running process."""
    options, pause = DEFENCES[defence]
    command, name = [*CERTIFY, *options, "--workers", workers], f"{defence} {workers} {next(NUMBERS)}"
    folder, run = server.folder, server.folder / name
    whole = server(*command, "--out", f"{name}-whole", PAUSE=pause)
    assert whole.code == 0, whole.err
    hits, graphs = 0, kept(run)
    for _ in range(kills):
        moment = whole.seconds * generator.uniform(0, 1.1 if hits else 0.5)
        hits += server(*command, "--out", name, killed_after=moment, PAUSE=pause).killed
        assert graphs <= kept(run), "a finished graph was lost"
        graphs = kept(run)
    ended = server(*command, "--out", name)
    assert ended.code == 0, ended.err
    assert "asking again" not in ended.err
    tables = [(path / "certificates.parquet").read_bytes() for path in (run, folder / f"{name}-whole")]
    assert tables[0] == tables[1]
    assert sorted(path.name for path in run.iterdir()) == ["certificates.parquet", "evidence.sqlite", "run.json"]
    assert server("verify", name).code == 0
    return hits


@pytest.mark.parametrize(("defence", "workers"), [("smoothing", 2), ("voting", 1)])
def test_killed_at_random_moments(server, defence, workers):
    assert killed_and_continued(server, defence, workers, 3, random.Random(f"{defence} {workers}")) >= 1


@pytest.mark.guarantee
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("defence", DEFENCES)
def test_killed_twenty_times_at_random_moments(server, defence, workers):
    generator, hits = random.Random(f"{defence} {workers}, twenty times"), 0
    while hits < 20:
        hits += killed_and_continued(server, defence, workers, 5, generator)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.guarantee)])
def test_a_disk_that_is_full_at_any_point_is_one_sentence_and_loses_nothing(server, workers):
    command = [*CERTIFY, "--keep", 0.8, "--samples", 3000, "--method", "votes", "--quiet", "--workers", workers]
    name, ends = f"full {workers}", 0
    assert server(*command, "--out", f"{name}-whole").code == 0
    for limit in (20_000, 60_000, 100_000, 140_000):
        ended = server(*command, "--out", name, file_limit=limit)
        if ended.code == 0:
            continue
        ends += 1
        assert ended.code == 2
        assert ended.err == (
            f"flipproof: no space left on the disk for {name}/evidence.sqlite; what is finished is kept (free some space, and "
            "run the same command again)\n"
        )
        assert not (server.folder / name / "certificates.parquet").exists()
    assert ends >= 2
    assert server(*command, "--out", name).code == 0
    tables = [(server.folder / run / "certificates.parquet").read_bytes() for run in (name, f"{name}-whole")]
    assert tables[0] == tables[1]
