"""``flipproof tune``: the right choice where it is known, on validation graphs alone, and commands that work."""

import json
import re
import shlex

import pytest

from flipproof.datasets.sources import DataSource
from flipproof.runs.run_folder import StudySettings, open_run
from flipproof.studies.candidate import named_candidate
from flipproof.studies.experiment import Experiment
from flipproof.studies.threat import Threat
from flipproof.studies.tuning import training_command
from support.command_line import write_graphs

ONE_SIDED = ("--candidate", "smoothing add=0 remove=0.3", "--candidate", "smoothing add=0.3 remove=0")
QUICK = shlex.split("--epochs 15 --samples 200 --test 0.25 --validation 0.25 --workers 1 --copies 4 --method votes")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    return write_graphs(tmp_path_factory.mktemp("tune") / "graphs", count=32, nodes=lambda index: 12 + index % 3)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        # under noise this light no vote of 200 samples is certified against a flip, whatever the network
        (("--radius", 1, "--candidate", "smoothing keep=0.99", "--candidate", "smoothing keep=0.9"), "keep 0.9"),
        # noise that never adds hides no addition, and noise that never removes no removal
        pytest.param(("--adds", 1, *ONE_SIDED), "add 0.3 remove 0", marks=pytest.mark.guarantee),
        (("--removes", 1, *ONE_SIDED), "add 0 remove 0.3"),
    ],
)
def test_the_right_candidate_is_chosen(target, expected, graphs, tmp_path, command):
    done = command("tune", "--data", graphs, *target, *QUICK, "--out", tmp_path / "t", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["best"]["defence"].startswith(expected)
    assert told["best"]["certified_accuracy"] > 0
    tried = {entry["defence"] for entry in told["candidates"]}
    # the other noise is not even trained
    assert tried == {expected, f"{expected} majority copies 16", f"{expected} attacked copies 4"}
    assert "out of reach with these settings, hence left out: " in done.err
    assert told["validation_graphs"] == 8


@pytest.mark.parametrize(("candidate", "name"), [("smoothing keep=0.8", "keep 0.8"), ("voting groups=3", "voting 3")])
def test_the_commands_it_prints_certify_the_graphs_it_never_saw(candidate, name, graphs, tmp_path, command):
    out = tmp_path / "t"
    words = ("tune", "--data", graphs, "--radius", 1, "--candidate", candidate, *QUICK, "--out", out)
    done = command(*words)
    assert done.code == 0, done.err
    assert f"best: gin with {name}" in done.out
    assert max(map(len, done.out.split("best: ")[0].splitlines())) <= 80
    assert len(re.findall(r"^ *.*\d\.\d{3}", done.out.split("best: ")[0], re.MULTILINE)) >= 3
    choice = json.loads((out / "choice.json").read_text())
    for line in choice["next"]:
        assert line in done.out
        step = command(*shlex.split(line)[1:])
        assert step.code == 0, step.err
    certified = json.loads((out / "run" / "run.json").read_text())["settings"]["graphs"]
    with open_run(out, StudySettings) as run:
        seen = {index for job in run.store.finished() for index in json.loads(run.store.load(job))["graphs"]}
    assert len(certified) == len(seen) == 8
    assert seen.isdisjoint(certified)
    # what was done is not done again, and says the same
    again = command(*words)
    assert again.out == done.out


def test_the_commands_take_directed_graphs_as_they_were_taken(graphs, tmp_path, command):
    candidate = named_candidate("smoothing keep=0.9")
    experiment = Experiment(DataSource(str(graphs), symmetrise=True), Threat(1), (candidate,))
    assert "--symmetrise" in shlex.split(training_command(experiment, candidate, {}, tmp_path))
    described = command("describe", "--data", graphs, "--symmetrise")
    assert f"next: flipproof protect --data {graphs} --symmetrise --radius 1 --out protected" in described.out


@pytest.mark.parametrize(
    ("text", "title", "setting"),
    [
        ("local budget=1 counts_only=true", "local counts 1", {"budget": 1, "counts_only": True}),
        ("voting groups=1 flips=1", "voting 1 flips 1", {"groups": 1, "flips": 1}),
    ],
)
def test_ways_of_training_are_candidates_by_name_and_by_default(text, title, setting):
    named = named_candidate(text)
    assert named.title == title
    key, value = list(setting.items())[1]
    assert named.training[key] == value
    assert setting.items() <= named.arguments.items()
    assert named_candidate(text.replace("true", "false")).title == title.replace(" counts", "")
    offered = Experiment(DataSource("topologies:48", validation=0.2), Threat(1)).prepared().candidates
    assert title in [candidate.title for candidate in offered]
