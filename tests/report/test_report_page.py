"""The report page: its templates, figures and content."""

import csv
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import flipproof
from flipproof.attacks import AttackResult
from flipproof.certificates.metrics import Curve
from flipproof.defences import defence_names
from flipproof.report import report_page as page_module
from flipproof.report.content import percent, reach_worth_drawing
from flipproof.report.drawing import Panel, curves_figure, write_figures
from flipproof.report.reading import read_run, with_attacks, with_lines
from flipproof.report.report_page import report_page
from flipproof.report.templates import bibtex, references
from flipproof.report.wording import wording
from flipproof.runs.run_folder import CertifySettings


@pytest.fixture(scope="module")
def even(folder):
    return read_run(folder / "even", "even")


def lead(run):
    """The headline, without its tags."""
    match = re.search(r'<p class="lead">(.*?)</p>', report_page([run]))
    return re.sub(r"<[^>]+>", "", match[1])


def test_the_first_sentence_compares_with_a_network_that_ignores_edges(even):
    assert lead(replace(even, no_line="")).startswith("This was not compared with a classifier that ignores edges: no")
    without = lead(replace(even, no_line="the data are gone <b>", majority=12))
    assert without.startswith("This was not compared with a classifier that ignores edges: the data are gone &lt;b")
    assert "This is no better than always naming the most frequent class, which is right on 12 of 12 graphs" in without
    best = int(even.right_radii().max())
    assert lead(replace(even, line=0)).startswith(f"This beats a classifier that ignores edges under any {best} flips")
    assert lead(replace(even, line=12)).startswith("This is no better than a classifier that ignores edges, which is")
    counts = even.curve(top=40).certified
    for line in range(13):
        run = replace(even, line=line)
        assert run.lead_over(line) == max((r for r, count in enumerate(counts) if count > line), default=-1)
        assert ("only as long as nobody attacks" in lead(run)) == (run.lead_over(line) == 0)
        assert f"right on {line} of 12 graphs" in lead(run)


def test_large_graphs_are_not_drawn(even, monkeypatch):
    def drawn(key):
        return [one[key] for one in page_module.script_data([even])["graphs"] if one["edges"] is not None]

    assert len(drawn("nodes")) == 12
    monkeypatch.setattr(page_module, "_DRAWN_NODES", 7)
    assert set(drawn("nodes")) == {6, 7}
    monkeypatch.setattr(page_module, "_ALL_EDGES", 30)
    assert 0 < sum(drawn("count")) <= 30


ROOT = Path(__file__).parents[2]


def test_every_entry_is_whole_and_names_author_title_and_year():
    for key, entry in references().items():
        assert re.fullmatch(r"@\w+\{[a-z0-9]+,\n(  \w+ +=? ?= \{.*\},?\n)+\}", entry), key
        assert entry.count("{") == entry.count("}")
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+)", entry, re.MULTILINE))
        assert not re.search(r"[^\x00-\x7f]", entry)


def test_defences_cite_entries_that_exist():
    cited = {key for name in defence_names() for key in wording(name).references}
    assert cited <= set(references())
    assert {"gao2020certified", "xia2024gnncert", "jin2020certified"} <= cited


def test_whatever_names_a_version_names_that_of_the_package():
    version = flipproof.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    assert f"note    = {{Software, version {version}}}" in references()["flipproof"]
    assert f"This is version {version}." in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0] == version
    assert citation["title"] in references()["flipproof"]
    assert citation["references"][0]["doi"] in references()["gao2020certified"]


def test_a_run_is_exported_with_what_it_rests_on(folder, command):
    done = command("export", folder / "even", folder / "blind", "--format", "bibtex")
    assert (done.code, done.err) == (0, "")
    keys = re.findall(r"^@\w+\{(\w+),", done.out, re.MULTILINE)
    assert keys == ["flipproof", "gao2020certified", "cohen2019certified", "bojchevski2020efficient", "hung2019rank"]
    assert bibtex([CertifySettings.read(folder / "blind")]) == references()["flipproof"] + "\n"


CURVES = (Curve("0.7", (40, 30, 10, 0), 50), Curve("0.9", (45, 20, 0, 0), 50))
PANEL = Panel("title", CURVES, floor=0.24)


def digests(paths):
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]


def test_the_same_numbers_give_the_same_files(tmp_path):
    paths, again = (curves_figure(tmp_path / folder / "beta", [PANEL]) for folder in "ab")
    assert [path.suffix for path in paths] == [".svg", ".pdf", ".png", ".csv"]
    assert digests(paths) == digests(again)
    other = curves_figure(tmp_path / "c" / "beta", [replace(PANEL, curves=CURVES[:1])])
    assert digests(paths[:3]) != digests(other[:3])
    assert not [path for path in (tmp_path / "a").iterdir() if path.name.endswith(".tmp")]


def test_numbers_beside_the_figure(tmp_path):
    path = curves_figure(tmp_path / "beta", [PANEL])[-1]
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) == 9
    row = rows[1]
    assert (row["curve"], row["r"], row["certified_graphs"], row["test_graphs"]) == ("0.7", "1", "30", "50")
    assert float(row["low95"]) < float(row["certified_accuracy"]) == 0.6 < float(row["high95"])
    assert (rows[-1]["curve"], rows[-1]["certified_accuracy"]) == ("edge-blind", "0.240000")


def test_figures_of_one_and_of_several(folder, tmp_path):
    runs = [read_run(folder / name, f"_{name}$") for name in ("even", "uneven", "blind")]
    runs = with_attacks(with_lines(runs), folder / "attack")
    paths = write_figures(tmp_path, runs)
    stems = ["add_remove", "certified_accuracy", "under_attack"]
    assert sorted({path.stem for path in paths}) == stems
    assert len(paths) == 4 * len(stems)
    accuracy = (tmp_path / "certified_accuracy.csv").read_text().splitlines()
    assert sum(line.split(",")[2] == "0" for line in accuracy) == 6  # two runs, three attackers
    assert "edge-blind,every,6,12,0.500000,0.210945,0.789055" in accuracy[-1]
    attacked = list(csv.DictReader((tmp_path / "under_attack.csv").read_text().splitlines()))
    assert {row["test_graphs"] for row in attacked} == {"4"}  # both bounds are of the graphs attacked
    assert next(row["curve"] for row in attacked if row["r"] == "0") == "certified (lower bound)"
    # an edge-blind model alone: its line, and nothing that a radius could tell
    alone = write_figures(tmp_path / "blind", runs[2:])
    assert {path.stem for path in alone} == {"certified_accuracy"}


def test_a_grid_of_additions_and_removals_contains_what_the_radius_says(folder):
    for name in ("even", "uneven"):
        run = read_run(folder / name, name)
        counts = run.add_remove_counts()
        by_flips, alone = (run.curve(attacker=attacker, top=20).certified for attacker in ("radius", "removes_radius"))
        assert counts[0, 0] == by_flips[0]
        assert tuple(counts[0]) == alone[: counts.shape[1]]
        for adds, removes in [(0, 1), (1, 0), (1, 1)]:
            assert counts[adds, removes] >= by_flips[adds + removes]


def test_the_chart_ends_where_hardly_a_graph_is_left():
    assert reach_worth_drawing(np.array([64, *[3] * 57])) == 3
    assert reach_worth_drawing(np.array([64, 64, *[3] * 56])) == 64
    assert reach_worth_drawing(np.array([-1])) == -1


ROUNDED = {
    (29, 40): "73%",  # 72.5: half up, never half to even
    (1, 8): "13%",
    (1, 16): "6%",
    (0, 40): "0%",
    (40, 40): "100%",
    (1, 100_000): "0.1%",  # not 0: there is one
    (99_999, 100_000): "99.9%",  # not 100: one is missing
    (1, 160): "0.6%",
}


def test_one_rounding():
    assert {share: percent(*share) for share in ROUNDED} == ROUNDED


def attacked(run, size, *, success=True, role="defended"):
    """The run with an attack of so many flips on its second graph."""
    row, graph = run.rows[1], run.graphs[run.rows[1]["graph"]]
    pairs = [(0, node) for node in range(1, 9)][:size]
    flips = tuple(pairs)
    result = AttackResult("greedy", graph.flipped(flips), flips, row["predicted"], success, True, 0.001, 5, 1, -1, 10)
    return replace(run, attacks={row["graph"]: {role: result}})


def test_an_attack_within_the_radius_is_named(even):
    radius = even.rows[1]["radius"]
    assert radius >= 1
    assert attacked(even, radius).broken == [1]
    assert attacked(even, radius + 1).broken == []
    assert attacked(even, radius, success=False).broken == []
    assert attacked(even, radius, role="base").broken == []  # the certificate is not about the base model
    rows = [{**row, "predicted": 0} for row in even.rows]
    assert replace(attacked(even, radius), rows=rows).broken == []  # nor about another class than its own
