"""From run folders to content: certificates read back or derived again, attacks and lines matched to what they belong to."""

import csv
import io
import json
import re
import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import flipproof as fp
from flipproof.attacks import robust_accuracy
from flipproof.certificates.metrics import share_interval
from flipproof.report import reading
from flipproof.report.content import Reading
from flipproof.report.paper_tables import latex, long_csv, paired_csv
from flipproof.report.reading import check_attacks, read_run, read_tables, run_names, with_attacks, with_lines
from flipproof.report.report_page import report_page, script_data
from flipproof.report.templates import latex_text
from flipproof.runs.attacking import read_attacks
from flipproof.runs.certifying import Line, keep_line, read_evidence
from flipproof.runs.run_folder import STORE_FILE, CertifySettings, Store, open_run, written_run
from flipproof.runs.table import read_table, write_table
from support.certified_runs import KEEP, attack, certify, make_small_runs
from support.runs import replace_evidence


def evidence_of(folder):
    with open_run(folder, CertifySettings) as run:
        return dict(read_evidence(run))


def rewrite(path, graph, change):
    """Change what a run holds of a graph, and make the hash agree."""
    with Store(path / STORE_FILE, write=True) as store:
        store.finish(graph, change(store.load(graph)))


@pytest.mark.parametrize("together", [False, True])
def test_every_method_reads_the_stored_evidence_at_its_own_level(folder, tmp_path, together):
    """Regression: the other methods were read at alpha, the run's own at alpha divided by the number of graphs."""
    place, alpha = folder / "uneven", 0.001 / (12 if together else 1)
    if together:
        make_small_runs(tmp_path)
        certify(tmp_path, "together", *KEEP, "--simultaneous")
        place = tmp_path / "together"
    run = read_run(place, "mine")
    assert (list(run.readings), run.alpha) == (["influence", "votes", "paper"], alpha)
    for index, votes in evidence_of(place).items():
        for method, by_graph in run.readings.items():
            assert by_graph[index] == Reading.of(fp.certify_votes(votes, alpha=alpha, method=method))


@pytest.mark.parametrize(("defence", "sampled"), [(["--keep", "0.95"], True), (["--groups", "1"], False)])
def test_an_attack_within_the_radius_of_any_defence_is_flagged(tmp_path, defence, sampled):
    """Regression: attacks on other defences than smoothing were left out of the report."""
    make_small_runs(tmp_path)
    certify(tmp_path, "run", *defence, samples=sampled)
    attack(tmp_path, "attack", *defence, "--graphs", "8")
    (honest,) = with_attacks([read_run(tmp_path / "run", "run")], tmp_path / "attack")
    successes = {index for index, roles in honest.attacks.items() if roles["defended"].success}
    rows = read_table(tmp_path / "run")
    right = {row["graph"] for row in rows if row["correct"]}
    assert successes & right
    assert honest.broken == []
    assert "within the certified radius" not in report_page([honest]).split("<script")[0]
    write_table(tmp_path / "run", [{**row, "radius": row["radius"] + 20} for row in rows])
    (false,) = with_attacks([read_run(tmp_path / "run", "run")], tmp_path / "attack")
    assert false.broken == sorted(successes & right)
    headline = report_page([false]).split("<script")[0]
    assert "attacks succeeded within the certified radius" in headline
    assert ("each with its probability alpha" in headline) == sampled
    assert ("Nothing was sampled, so this is a fault" in headline) != sampled


@pytest.mark.parametrize("name", ["even", "uneven"])
def test_of_very_many_graphs_some_are_listed_and_all_are_counted(folder, monkeypatch, name):
    whole = read_run(folder / name, name)
    monkeypatch.setattr(reading, "MOST_LISTED", 5)
    run = read_run(folder / name, name)
    assert len(whole.graphs) == len(run.rows) == len(whole.rows)
    assert len(run.graphs) == 5
    outcomes = {(row["label"], row["predicted"] == row["label"], row["radius"]) for row in run.rows}
    listed = {
        (row["label"], row["predicted"] == row["label"], row["radius"])
        for row in run.rows
        if row["graph"] in run.graphs
    }
    assert len(listed) == min(5, len(outcomes))  # nothing twice before everything once
    assert run.readings == whole.readings
    assert run.graphs == {index: whole.graphs[index] for index in run.graphs}
    assert all(np.array_equal(run.right_radii(name), whole.right_radii(name)) for name in run.readings)
    assert run.add_remove_counts().tolist() == whole.add_remove_counts().tolist()
    page, full = script_data([run]), script_data([whole])
    assert len(page["graphs"]) == 5
    assert page["graphs"] == [graph for graph in full["graphs"] if graph["index"] in run.graphs]
    counted, top = page["runs"][0].pop("counted"), page["top"]
    all_counted = full["runs"][0].pop("counted")
    assert page["runs"] == full["runs"]
    assert counted["classes"] == all_counted["classes"]
    assert [spot[:3] for spot in counted["sizes"]] == [spot[:3] for spot in all_counted["sizes"]]
    radii = whole.right_radii().tolist()
    for label, counts in enumerate(counted["classes"]):
        own = [min(top, r + 1) for r, row in zip(radii, whole.rows, strict=True) if row["label"] == label]
        assert counts == [own.count(place) for place in range(top + 1)]
    votes, influence = (whole.readings[method] for method in ("votes", "influence"))
    spots = {
        "sizes": Counter(zip((row["nodes"] for row in whole.rows), radii, strict=True)),
        "pairs": Counter((votes[index].radius, influence[index].radius) for index in whole.graphs),
    }
    for key, wanted in spots.items():
        assert {(x, y): count for x, y, count, _ in counted[key]} == wanted
        assert {index for spot in counted[key] for index in spot[3]} <= run.graphs.keys()
    words = report_page([run]).split("<script")[0]
    assert f"{name} has 12 graphs" in words
    assert "the table lists 5" in words


def test_attacked_graphs_are_listed_even_of_very_many(folder, monkeypatch):
    whole = with_attacks([read_run(folder / "even", "even")], folder / "attack")[0]
    monkeypatch.setattr(reading, "MOST_LISTED", 1)
    (run,) = with_attacks([read_run(folder / "even", "even")], folder / "attack")
    assert run.graphs.keys() >= run.attacks.keys() == whole.attacks.keys()
    assert run.under_attack == whole.under_attack


def test_evidence_that_is_missing_or_was_exchanged_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder / "even", tmp_path / "even")
    other = evidence_of(folder / "uneven")[3].to_bytes()
    rewrite(copy, 3, lambda content: other)
    with pytest.raises(fp.InputError, match=r"graph 3 in .* was not read from the evidence that is there"):
        read_run(copy, "even")
    replace_evidence(copy, 3, None)
    with pytest.raises(fp.InputError, match="evidence of 11 of 12 graphs: the run is not finished"):
        read_run(copy, "even")


def test_evidence_is_read_graph_by_graph(folder, monkeypatch):
    """However many graphs a run has, the evidence of one is held at a time."""
    import gc
    import weakref

    alive: list[weakref.ref[object]] = []

    def watched(run):
        for index, evidence in read_evidence(run):
            alive.append(weakref.ref(evidence))
            yield index, evidence
            del evidence
            gc.collect()
            assert sum(one() is not None for one in alive) <= 1

    monkeypatch.setattr("flipproof.report.reading.read_evidence", watched)
    gc.freeze()  # what there is already need not be looked at
    try:
        run = read_run(folder / "even", "even")
    finally:
        gc.unfreeze()
    assert len(alive) == len(run.rows) == 12


def test_attacks_are_matched_and_counted(folder):
    runs = [read_run(folder / name, name) for name in ("even", "uneven", "blind")]
    even, uneven, blind = with_attacks(runs, folder / "attack")
    # another noise and another model are left alone
    assert [len(run.attacks) for run in (even, uneven, blind)] == [4, 0, 0]
    results = [by_role["defended"] for by_role in even.attacks.values()]
    labels = [even.graphs[index].label for index in even.attacks]
    still = even.under_attack["defended"].accuracy.tolist()
    assert still == robust_accuracy(results, labels, range(3)).tolist()
    check_attacks(folder / "attack", [uneven.settings, even.settings])
    with pytest.raises(fp.InputError, match="attacked another model, data or defence than the runs"):
        check_attacks(folder / "attack", [uneven.settings, blind.settings])


def test_of_two_runs_of_attacks_the_stronger_counts(folder, tmp_path):
    """Regression: the last --attack replaced the ones before it, with all that they had found."""
    (one,) = with_attacks([read_run(folder / "even", "even")], folder / "attack")
    weaker = shutil.copytree(folder / "attack", tmp_path / "attack")
    for graph in one.attacks:
        rewrite(weaker, graph, fail)
    (both,) = with_attacks(with_attacks([read_run(folder / "even", "even")], folder / "attack"), weaker)
    (other_way,) = with_attacks(with_attacks([read_run(folder / "even", "even")], weaker), folder / "attack")
    assert both.under_attack == other_way.under_attack == one.under_attack


def fail(content):
    stored = json.loads(content)
    for values in stored.values():
        values["success"] = False
    return json.dumps(stored).encode()


def test_an_attack_that_was_altered_is_refused(folder, tmp_path):
    copy = shutil.copytree(folder / "attack", tmp_path / "attack")
    stored = read_attacks(copy)[1][1]
    stored["defended"]["flips"] = [[0, 99]]
    rewrite(copy, 1, lambda content: json.dumps(stored).encode())
    with pytest.raises(fp.InputError, match="the attack on graph 1"):
        with_attacks([read_run(folder / "even", "even")], copy)


def test_the_line_of_a_network_that_ignores_edges(folder, tmp_path):
    even, blind = (read_run(folder / name, name) for name in ("even", "blind"))
    assert even.line is None
    assert [run.line for run in with_lines([even, blind])] == [6, 6]
    # the line that certify found stays with the run; the best one known counts
    copy = shutil.copytree(folder / "even", tmp_path / "even")
    answers = {row["graph"]: abs(int(row["label"]) - (place >= 7)) for place, row in enumerate(even.rows)}
    with written_run(copy, even.settings) as run:
        keep_line(run, Line(answers))
    assert read_run(copy, "even").line == 7
    assert [run.line for run in with_lines([read_run(copy, "even"), even, blind])] == [7, 7, 7]  # the same graphs
    with written_run(copy, even.settings) as run:
        keep_line(run, Line(dict.fromkeys(list(answers)[1:], 0)))
    with pytest.raises(fp.InputError, match="was altered: it belongs to other graphs"):
        read_run(copy, "even")


def test_names_of_runs(tmp_path):
    places = [tmp_path / name for name in ("a/run", "b/run", "other")]
    assert run_names(places) == [*map(str, places[:2]), "other"]  # one name for two runs would drop one of them
    with pytest.raises(fp.InputError, match="twice"):
        run_names([tmp_path / "a", tmp_path / "b" / ".." / "a"])


@pytest.fixture(scope="module")
def runs(folder):
    return read_tables([folder / name for name in ("even", "uneven", "blind")])


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_long_format_has_one_row_per_run_attacker_and_radius(runs):
    rows = rows_of(long_csv(runs))
    about = "run data part model defence method alpha attacker radius certified_graphs graphs certified_accuracy low95 high95"
    assert list(rows[0]) == [*about.split(), "edge_blind_accuracy", "edge_blind_low95", "edge_blind_high95"]
    keys = [(row["run"], row["attacker"], int(row["radius"])) for row in rows]
    assert len(set(keys)) == len(keys) == 3 * 3 * 5
    for row in rows:
        run = next(run for run in runs if run.name == row["run"])
        column = {"any flips": "radius", "additions only": "adds_radius", "removals only": "removes_radius"}
        right = int((run.radii[column[row["attacker"]]] >= int(row["radius"])).sum())
        assert (int(row["certified_graphs"]), int(row["graphs"])) == (right, 12)
        assert float(row["certified_accuracy"]) == pytest.approx(right / 12, abs=1e-6)
        ends = [float(end) for end in share_interval(right, 12)]
        assert [float(row["low95"]), float(row["high95"])] == pytest.approx(ends, abs=1e-6)
    assert [int(row["radius"]) for row in rows_of(long_csv(runs[:1], [2, 40]))] == [2, 40] * 3


def test_latex_holds_every_share_with_its_interval_and_escapes_every_name(runs):
    named = [replace(runs[0], name=r"50%_a\b & {c}"), *runs[1:]]
    text = latex(named, [0, 1])
    assert latex_text(named[0].name) == r"50\%\_a\textbackslash{}b \& \{c\}"
    plain = re.sub(r"\\\\$|\\[&%_${}]", "", text, flags=re.MULTILINE)  # without what is escaped
    lines = [line for line in plain.splitlines() if line.startswith("    ") and "&" in line]
    assert {line.count("&") for line in lines} == {5, 6}  # a cell for each column of either table
    assert plain.count("{") == plain.count("}")
    low, high = share_interval(6, 12)
    values, intervals = text.splitlines()[text.splitlines().index(r"    \midrule") + 1 :][:2]
    assert "50.0" in values.split(" & ")
    assert (
        intervals.split(" & ")[values.split(" & ").index("50.0")]
        == rf"{{\scriptsize [{100 * low:.1f}, {100 * high:.1f}]}}"
    )
    assert text.count(r"\begin{tabular}") == 2
    assert "corrected for all 4 comparisons" in text
    for attacker in ("any flips", "additions only", "removals only"):
        assert text.count(attacker) == 3
    alone = latex(runs[:1])
    assert "attacker" not in alone  # the radius says everything
    assert "McNemar" not in alone


def test_paired_tests_compare_the_first_run_graph_by_graph(runs):
    rows = rows_of(paired_csv(runs, [0, 1]))
    assert [(row["first"], row["second"], row["radius"]) for row in rows] == [
        ("even", "uneven", "0"),
        ("even", "uneven", "1"),
        ("even", "blind", "0"),
        ("even", "blind", "1"),
    ]
    even, uneven = (run.radii["radius"] >= 1 for run in runs[:2])
    assert int(rows[1]["only_first"]) == int((even & ~uneven).sum()) == 6
    assert float(rows[1]["p_value"]) == 2 / 2**6
    assert float(rows[1]["p_holm"]) == 4 * 2 / 2**6
    assert {row["comparisons"] for row in rows} == {"4"}


def test_runs_that_cannot_be_compared_are_refused(runs):
    fewer = replace(runs[1], rows=runs[1].rows[1:])
    with pytest.raises(fp.InputError, match="same graphs; uneven and even certify different ones"):
        paired_csv([runs[0], fewer])
    assert "no paired tests: the runs certify different graphs" in latex([runs[0], fewer])
    with pytest.raises(fp.InputError, match="at least two"):
        paired_csv(runs[:1])


def test_graphs_without_labels_have_no_accuracy(folder, monkeypatch):
    unlabelled = [{**row, "label": None} for row in read_tables([folder / "even"])[0].rows]
    monkeypatch.setattr("flipproof.report.reading.read_table", lambda _: unlabelled)
    with pytest.raises(fp.InputError, match="without labels, so there is no certified accuracy"):
        read_tables([folder / "even"])
