"""What can be typed or lie around wrongly, and the one sentence each gets. Exit code 2, no traceback, nothing written."""

import os
import shlex
import shutil

import pytest

from flipproof.runs.run_folder import AttackSettings, CertifySettings, written_run
from support.certified_runs import run_command
from support.command_line import OWN_MODEL, write_degrees, write_graphs, write_molecules
from support.runs import replace_evidence, stored

NO_ATTACK = AttackSettings("graphs", "", [], "", None, None, "own", 1, [], {}, 1, 1, 0.1, 0)

TRAIN = "train --data graphs --epochs 1 --out new"
OWN = "certify --model own:make --data graphs --keep 0.8 --samples 50 --out new"
SAVED = "certify --model model --samples 50 --out new"
VOTING = "certify --model own:make --data graphs --groups 3 --out new"
NOISY = "train --data molecules --epochs 1 --out new -q --keep 0.9"
PREDICT = "predict --model own:make --classes 2 --keep 0.9 --samples 400"
ATTACK = "attack --model clean --graphs 1 --out new"
TUNE = "tune --data graphs --validation 0.25 --out new"
PROTECT = "protect --data graphs --out new"

OTHERS = """
import numpy as np


def boom():
    raise RuntimeError("no licence")


def nothing():
    return None


def high():
    return lambda graphs: [7] * len(graphs)


def random():
    return lambda graphs: np.random.randint(0, 2, len(graphs))


def later():
    # the probe sees at most 32 graphs at a time; a block of samples of the second graph fails, after those of 8 nodes
    return lambda graphs: [0 if len(graphs) <= 32 else 1 // (7 - graph.num_nodes) * 0 for graph in graphs]
"""

# command, words of the sentence
BAD_INPUT = [
    # options that the parser cannot read
    ("trian --data graphs", "No such command 'trian'"),
    ("train --out new", "Missing option '--data'"),
    ("certify --out new", "Missing option '--model'"),
    ("export", "Missing argument 'RUN'"),
    ("train --data graphs --epochs many --out new", "--epochs must be an integer; got 'many'"),
    ("certify --model model --sample 5 --out new", "No such option: --sample"),
    (f"{OWN} --graphs 0", "--graphs must be at least 1; got '0'"),
    # noise
    (f"{TRAIN} --keep 0.3", "keep must lie in (0.5, 1); got 0.3 (did you mean 0.7?)"),
    (f"{TRAIN} --add 0.1", "EdgeNoise needs keep, or both add and remove; got only add"),
    ("radius --p-lower 1.5 --keep 0.9", "p_lower"),
    # voting
    (f"{TRAIN} --groups 70000", "groups must be an integer from 1 to 65536; got 70000 (for instance 5)"),
    (f"{TRAIN} --renumber", "--renumber belongs to voting, and the defence here is none (leave it out)"),
    (f"{TRAIN} --groups 3 --keep 0.9", "--groups belongs to voting, and the defence here is smoothing (leave it out)"),
    (f"{OWN} --defence voting", "--keep belongs to smoothing, and the defence here is voting (leave it out)"),
    (f"{OWN} --defence shield", "got 'shield' (smoothing is the usual one)"),
    (f"{SAVED} --groups 3", "--samples belongs to smoothing, and the defence here is voting (leave it out)"),
    ("certify --model model --out new --defence voting", "voting needs a number of groups; got none"),
    ("certify --model model --groups 3 --features one-hot-degree --out new", "the model failed on noisy copies"),
    (f"{VOTING} --feature-groups 2 --depth 1", "knows no prices"),
    (f"{VOTING} --nodes 1", "--nodes belongs to local"),
    ("certify --model blind --groups 3 --out new", "the defence here is edge-blind"),
    ("certify --model blind --samples 5 --out new", "--samples belongs to smoothing"),
    (f"{TRAIN} --model edge-blind --groups 3", "--groups belongs to voting, and the defence here is edge-blind"),
    (f"{TRAIN} --budget 2 --model gin", "local needs --model local"),
    (f"{TRAIN} --counts-only --keep 0.9", "--counts-only belongs to"),
    # noise on node features
    (f"{NOISY} --label-keep 0.4", "keep must exceed 1 / 2"),
    (f"{NOISY} --bit-add 0.1", "needs bit_add and bit_remove"),
    (f"{NOISY} --bit-add 0.1 --bit-remove 0.1 --label-keep 0.9", "on labels or on bits"),
    (f"{NOISY} --label-keep 0.9 --features degree", "which the model does not see"),
    (NOISY.replace("molecules", "weighed") + " --label-keep 0.9", "one-hot node features"),
    (NOISY.replace("molecules", "weighed") + " --bit-add 0.1 --bit-remove 0.1", "binary node features"),
    # trainings
    (f"{TRAIN} --corrected", "--corrected is for gin under noise; got --model gin and no noise"),
    (f"{TRAIN} --objective votes", "objective must be one of samples, majority, attacked, attacked-votes; got 'votes'"),
    (f"{TRAIN} --objective majority --keep 0.9", "the majority objective needs several noisy copies; got copies=1"),
    (f"{TRAIN} --model edge-blind --hidden 8", "--hidden and --objective belong to networks"),
    (f"{TRAIN} --model gat --hidden 30", "hidden must be a multiple of the 4 heads of gat; got 30"),
    # attacks
    (f"{ATTACK} --attacks nonsense", "attacks must be among"),
    (f"{ATTACK} --samples 0", "samples must be an integer of at least 1"),
    (f"{ATTACK} --confirm-samples 0", "confirm_samples must be an integer of at least 1"),
    (f"{ATTACK} --alpha 2", "alpha must lie in"),
    (f"{ATTACK} --seed -1", "seed must be an integer from 0"),
    ("attack --model own:make --data graphs --changes 1 --out new", "labels or bits"),
    # answers
    (f"{PREDICT} gone.json", "gone.json is missing"),
    (f"{PREDICT} gone", "gone is missing"),
    (f"{PREDICT} own.py", "own.py is of no known kind"),
    (f"{PREDICT} - graphs", "- stands for standard input and is given alone"),
    (f"{PREDICT} - --simultaneous", "--simultaneous needs to know the number of graphs in advance"),
    ("predict --model own:make --keep 0.9 graphs", "does not say how many classes it has (give --classes)"),
    ("predict --model own:make --classes 2 graphs", "one must be given (--keep 0.9"),
    # searches
    (TUNE, "say which attack is to be withstood"),
    (f"{TUNE} --radius 100000", "no graph has room for 100000 flips: the largest one has"),
    (f"{TUNE} --radius 1 --model gan", "--model must be one of"),
    (f"{TUNE} --radius 1 --candidate 'smoothing keep=0.3'", "keep must lie in (0.5, 1)"),
    (f"{TUNE} --radius 1 --candidate 'local budget=1 counts_only=perhaps'", "--candidate must read local"),
    (f"{TUNE} --radius 1 --candidate 'smoothing noise=0.3'", "--candidate must read smoothing keep=VALUE"),
    (f"{TUNE} --radius 1 --candidate voting", "voting needs a number of groups"),
    (f"{TUNE} --radius 1 --candidate smoothing=0.9", "defence must be one of smoothing, voting"),
    (f"{TUNE} --radius 1 --candidate edge-blind", "edge-blind is something to compare with"),
    (f"{TUNE} --radius 1 --validation 0", "--validation must be above 0"),
    (f"{TUNE} --radius 1 --alpha 2", "alpha must lie in (0, 1)"),
    (f"{TUNE} --radius 1 --method magic", "method must be one of"),
    (f"{TUNE} --radius 1 --features smell", "features must be one of"),
    (
        f"{TUNE} --radius 1 --candidate 'smoothing keep=0.99' --samples 200",
        "no candidate can be certified against 1 flip",
    ),
    (f"{TUNE} --radius 3 --candidate 'voting groups=5' --depth 0", "no candidate can be certified against 3 flips"),
    (f"{TUNE} --radius 2 --candidate local --per-node 1", "no candidate can be certified against 2 flips"),
    (f"{PROTECT} --radius 1 --time 10", "--time must be a time such as 90s"),
    (f"{PROTECT} --radius 1 --time 0m", "--time must be a time such as 90s"),
    (f"{PROTECT} --adds 1 --changes 1", "changes of node features go with a radius of any flips; got changes 1 beside"),
    (
        f"{PROTECT} --radius 1 --changes 1",
        "changes = 1 needs node labels (one 1 per row) or bits (0 and 1) as node features",
    ),
    # numbers
    (f"{OWN} --alpha 0", "alpha must lie in (0, 1)"),
    (f"{OWN} --samples 0", "--samples must be at least 1; got '0'"),
    (f"{OWN} --engine spark", "--engine must be one of local, ray; got 'spark' (local is the default)"),
    (f"{OWN} --address auto", "--address is a Ray cluster's; got --engine local (add --engine ray)"),
    (f"{OWN} --method votez", "method must be one of influence, votes, paper; got 'votez'"),
    (f"{OWN} --part tests", "--part must be one of test, validation, train, all; got 'tests'"),
    (f"{OWN} --part validation", "--part validation holds no graph"),
    (f"{TRAIN} --epochs 0", "epochs must be an integer of at least 1; got 0"),
    (f"{TRAIN} --test 0", "--test must be a share of the graphs in (0, 1); got 0"),
    (f"{TRAIN} --test 0.9 --validation 0.9", "must fit into 12 graphs"),
    # data
    ("train --data MUTAG --out new", "MUTAG is no folder here, and a TU name needs --root"),
    ("train --data tu --out new", "tu is a folder without labels.csv"),
    ("train --data MUTAG --root graphs --out new", "no files of MUTAG under graphs"),
    ("train --data ./nowhere --out new", "nowhere is no folder here"),
    ("train --data topologies:few --out new", "--data topologies:COUNT needs a number of graphs; got 'topologies:few'"),
    ("train --data degrees --out new", "column 0 of node_features (degree) is the degrees"),
    # models
    (f"{TRAIN} --model gat9", "--model must be one of gcn, gin"),
    (f"{TRAIN} --features colour", "features must be one of own, degree"),
    (f"{TRAIN} --features own", "the model needs node features and the graph has none"),
    (f"{TRAIN} --features own:make", "--features must be one that a model folder can name"),
    (f"{TRAIN} --model edge-blind --features degree", "features of an edge-blind model must not depend on edges"),
    ("certify --model gone --out new", "be a folder that train wrote, or package.module:factory; gone is neither"),
    ("certify --model gcn --out new", "--model gcn is a model without weights"),
    ("certify --model graphs --out new", "graphs is not a model folder"),
    ("certify --model cut --out new", "weights.safetensors is cut off or altered"),
    (f"{SAVED} --classes 5", "--classes must be the model's own number of classes, 2; got 5"),
    (f"{SAVED} --data topologies:16", "the data do not fit the model: the classes must be among ring, wheel"),
    ("certify --model clean --out new", "the model was not trained for a defence, so one must be given (--keep 0.9"),
    ("certify --model moved --out new", "are not those that the model was trained on"),
    ("certify --model own:make --keep 0.8 --out new", "the model does not say which data it belongs to (give --data)"),
    ("certify --model own:make --data graphs --out new", "model was not trained for a defence, so one must be given"),
    ("certify --model own:missing --data graphs --out new", "own has no callable missing"),
    ("certify --model own.py:make --data graphs --out new", "importing own.py failed"),
    ("certify --model ./own:make --data graphs --out new", "--model must read package.module:name; got './own:make'"),
    ("certify --model others:boom --data graphs --out new", "the factory failed with RuntimeError: no licence"),
    ("certify --model others:nothing --data graphs --out new", "the factory must return a model; got None"),
    (OWN.replace("own:make", "others:high"), "the classifier must return labels 0..1; got 7"),
    (OWN.replace("own:make", "others:random"), "the model must be a function of the noisy graph alone"),
    # folders and files
    (f"{TRAIN}".replace("new", "graphs"), "--out graphs exists and is not a model folder"),
    (f"{TRAIN}".replace("new", "model"), "--out model holds a model already"),
    (OWN.replace("new", "graphs"), "graphs holds files but no run.json"),
    (OWN.replace("new", "own.py"), "--out must be a folder; own.py is a file"),
    (OWN.replace("new", "run"), "run holds a run with samples = 40; asked for samples = 50"),
    (OWN.replace("new", "torn"), "torn/run.json cannot be read as a run's settings"),
    ("export gone", "gone is not a run folder: there is no such folder"),
    ("export graphs", "graphs is not a run folder: it has no run.json"),
    ("export run --format xlsx", "--format must be one of csv, parquet, json, long, latex, paired, bibtex; got 'xlsx'"),
    ("export run --format parquet", "--format parquet is not text and needs a file"),
    ("export run --out graphs", "--out must be a file; graphs is a folder"),
    ("export run unfinished --format csv", "exports one run; got 2"),
    ("export run --radii 1", "--radii is for --format long, latex, paired"),
    ("export run --format long --radii 0,x", "--radii must be different whole numbers"),
    ("export run --format long --radii 0,999999999999", "--radii must be different whole numbers from 0 to 100000"),
    ("export run --format long --radii 1,1", "--radii must be different whole numbers"),
    ("export unfinished", "unfinished has no certificates.parquet: the run is not finished"),
    ("export spoilt", "spoilt/certificates.parquet is cut off or altered"),
    ("report run run", "each run must be given once; got run twice"),
    ("report run halfway", "halfway has evidence of 3 of 4 graphs: the run is not finished"),
    ("report attacked", "attacked was not made by flipproof certify"),
    ("report run --out own.py", "--out must be a folder; own.py is a file"),
    ("report run --attack gone", "is not a run folder: there is no such folder (give the --out of flipproof attack)"),
    ("report run --attack run", "run was not made by flipproof attack"),
    ("report run --attack attacked", "--attack attacked attacked another model, data or defence than the runs"),
    ("verify unfinished", "the run is not finished"),
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with good and bad data, models and runs."""
    from flipproof import models
    from flipproof.datasets.sources import DataSource

    folder = tmp_path_factory.mktemp("user")
    write_graphs(folder / "graphs")
    for name, text in (("own", OWN_MODEL), ("others", OTHERS)):
        (folder / f"{name}.py").write_text(text)
    source = DataSource(str(folder / "graphs"))
    metadata = {"features": "degree", **source.metadata(source.load())}
    network = models.GCN(in_features=1, num_classes=2, hidden=4, seed=0)
    keep = {"name": "smoothing", "keep": 0.9}
    for name, extra in {
        "model": {"defence": keep},
        "clean": {},
        "cut": {},
        "moved": {"defence": keep, "data_sha256": "0" * 64},
    }.items():
        models.save(network, folder / name, metadata={**metadata, **extra})
    (folder / "cut" / "weights.safetensors").write_bytes(b"half")
    (folder / "tu" / "TOY").mkdir(parents=True)
    (folder / "tu" / "TOY" / "TOY_A.txt").write_text("1,2\n")
    write_degrees(folder / "degrees")
    write_molecules(folder / "molecules")
    write_molecules(folder / "weighed", attribute="mass")
    run_command(folder, *["train", "--data", "graphs", "--model", "edge-blind", "--out", "blind"])
    return folder


@pytest.fixture(scope="module")
def runs(workplace):
    """Runs to be refused: a good one, others without certificates or half of them, without a vote, with a torn run.json."""
    run_command(workplace, *OWN.replace("new", "run").replace("50", "40").split())
    for name in ("unfinished", "spoilt", "torn", "halfway"):
        shutil.copytree(workplace / "run", workplace / name)
    (workplace / "unfinished" / "certificates.parquet").unlink()
    table = workplace / "spoilt" / "certificates.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    (workplace / "halfway" / "certificates.parquet").unlink()
    replace_evidence(workplace / "halfway", CertifySettings.read(workplace / "run").graphs[0], None)
    with written_run(workplace / "attacked", NO_ATTACK):
        pass
    (workplace / "torn" / "run.json").write_text('{"settings": {')
    return workplace


def contents(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize(("typed", "sentence"), BAD_INPUT, ids=[typed for typed, _ in BAD_INPUT])
def test_bad_input_gets_one_sentence(runs, typed, sentence, monkeypatch, command):
    monkeypatch.chdir(runs)
    before = contents(runs)
    done = command(*shlex.split(typed))
    assert done.code == 2, done.err
    assert sentence in done.err
    assert done.err.startswith("flipproof: ")
    assert done.err.count("\n") == 1
    assert "; got " in done.err or done.err.endswith(")\n"), "what came, or in brackets what to do"
    assert "Traceback" not in done.err
    assert done.out == ""
    assert contents(runs) == before


def test_a_model_that_fails_on_a_later_graph_keeps_what_is_finished(runs, monkeypatch, command):
    monkeypatch.chdir(runs)
    typed = OWN.replace("own:make", "others:later").replace("new", "later") + " --part all"
    # one worker, so that it is known which graphs come first
    done = command(*typed.split(), "--workers", 1)
    assert done.code == 2
    assert "the model failed on graph 1 with ZeroDivisionError" in done.err
    finished = [row[0] for row in stored(runs / "later")]
    assert [item for item in finished if isinstance(item, int)] == [2, 5, 8, 11]


def test_no_command_shows_the_help(command):
    shown = command()
    assert (shown.code, shown.err) == (0, "")
    assert "certify" in shown.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission(runs, monkeypatch, command, tmp_path):
    monkeypatch.chdir(runs)
    tmp_path.chmod(0o500)
    done = command(*OWN.split()[:-1], tmp_path / "new")
    assert done.code == 2
    assert "Permission denied" in done.err
