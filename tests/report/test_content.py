"""What a report is made from: certificates read back or derived again, attacks matched to what they attacked."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import flipproof as fp
from support.certified_runs import make_runs
from flipproof.attacks.result import robust_accuracy
from flipproof.report.content import check_attacks, curve_range, read_attacks, read_run, run_names, with_attacks
from flipproof.report.page import embedded_json, report_page
from flipproof.report.run_figures import add_remove_shares, write_figures
from flipproof.runs.folder import Run
from flipproof.runs.table import read_table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_runs(tmp_path_factory.mktemp("user"))


def test_every_method_reads_the_stored_votes(folder: Path) -> None:
    run = read_run(folder / "uneven", "uneven")
    assert list(run.readings) == ["influence", "votes", "paper"]
    for index in run.graphs:
        votes = Run.open(folder / "uneven").load(index)
        for method, found in run.readings.items():
            certificate = fp.certify_votes(votes, alpha=0.001, method=method)
            expected = (certificate.label, certificate.radius, certificate.adds_radius, certificate.removes_radius)
            reading = found[index]
            assert (reading.label, reading.radius, reading.adds_radius, reading.removes_radius) == expected


def test_curves_are_the_certified_accuracy(folder: Path) -> None:
    run = read_run(folder / "even", "even")
    votes = [Run.open(folder / "even").load(index) for index in run.graphs]
    certificates = [fp.certify_votes(one, alpha=0.001) for one in votes]
    labels = [graph.label for graph in run.graphs.values()]
    curve = run.curve("influence", "radius", 4)
    assert curve.accuracy.tolist() == fp.certified_accuracy(certificates, labels, range(5)).tolist()
    assert run.accuracy == curve.accuracy[0]


def test_certificates_are_derived_where_the_table_is_missing(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "even", tmp_path / "even")
    (copy / "certificates.parquet").unlink()
    assert list(read_run(copy, "even").rows) == read_table(Run.open(folder / "even"))
    assert not (copy / "certificates.parquet").exists()


def test_votes_that_are_missing_or_were_exchanged_are_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "even", tmp_path / "even")
    shutil.copy(folder / "uneven" / "votes" / "00003.npz", copy / "votes" / "00003.npz")
    with pytest.raises(fp.InputError, match=r"graph 3 in .* was not read from the votes that are there"):
        read_run(copy, "even")
    (copy / "votes" / "00003.npz").unlink()
    with pytest.raises(fp.InputError, match="votes of 11 of 12 graphs: the run is not finished"):
        read_run(copy, "even")


def test_a_grid_of_additions_and_removals_contains_what_the_radius_says(folder: Path) -> None:
    for name in ("even", "uneven"):
        run = read_run(folder / name, name)
        shares = add_remove_shares(run)
        by_flips, alone = (
            run.curve(run.method, "radius", 20).accuracy,
            run.curve(run.method, "removes_radius", 20).accuracy,
        )
        assert shares[0, 0] == run.accuracy
        assert shares[0].tolist() == pytest.approx(alone[: shares.shape[1]])
        for (adds, removes), share in [(place, shares[place]) for place in [(0, 1), (1, 0), (1, 1)]]:
            assert share >= by_flips[adds + removes] - 1e-12


def test_attacks_are_matched_and_counted(folder: Path) -> None:
    even, uneven, blind = (read_run(folder / name, name) for name in ("even", "uneven", "blind"))
    attacks = read_attacks(folder / "attack")
    found = with_attacks([even, uneven, blind], attacks)
    assert [len(run.attacks) for run in found] == [4, 0, 0]  # the other noise and the other model are left alone
    results = [by_target["smoothed"] for by_target in found[0].attacks.values()]
    labels = [even.graphs[index].label for index in found[0].attacks]
    still = [count / 4 for count in found[0].under_attack["smoothed"]]
    assert still == robust_accuracy(results, labels, range(3)).tolist()
    check_attacks([uneven.settings, even.settings], attacks)
    with pytest.raises(fp.InputError, match="attacked another model, data or noise than the runs"):
        check_attacks([uneven.settings, blind.settings], attacks)


def test_an_attack_that_was_altered_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder / "attack", tmp_path / "attack")
    stored = json.loads((copy / "attacks" / "00001.json").read_text())
    stored["smoothed"]["flips"] = [[0, 99]]
    (copy / "attacks" / "00001.json").write_text(json.dumps(stored))
    with pytest.raises(fp.InputError, match="the attack on graph 1"):
        with_attacks([read_run(folder / "even", "even")], read_attacks(copy))
    (copy / "attacks" / "00001.json").write_text('{"smoothed"')
    with pytest.raises(fp.InputError, match="is not a whole attack"):
        read_attacks(copy)


def test_names_of_runs(tmp_path: Path) -> None:
    places = [tmp_path / name for name in ("a/run", "b/run", "other")]
    assert run_names(places) == ["a/run", "b/run", "other"]
    with pytest.raises(fp.InputError, match="twice"):
        run_names([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_figures_of_one_and_of_several(folder: Path, tmp_path: Path) -> None:
    runs = [read_run(folder / name, f"_{name}$") for name in ("even", "uneven", "blind")]
    floors = {runs[2].data_key: runs[2].accuracy}
    paths = write_figures(tmp_path, runs, floors)
    stems = ["certified_accuracy", "radii_by_class", "add_remove", "radius_by_size", "votes_and_influence"]
    assert sorted({path.stem for path in paths}) == sorted(stems)
    assert len(paths) == 4 * len(stems)
    accuracy = (tmp_path / "certified_accuracy.csv").read_text().splitlines()
    assert sum(line.split(",")[2] == "0" for line in accuracy) == 6  # two runs, three attackers
    assert f"{runs[2].accuracy:.6f}" in accuracy[-1]
    classes = [line.rsplit(",", 1) for line in (tmp_path / "radii_by_class.csv").read_text().splitlines()[1:]]
    assert sum(int(number) for _, number in classes) == 24
    # an edge-blind model alone: its line, and nothing that a radius could tell
    alone = write_figures(tmp_path / "blind", runs[2:], floors)
    assert {path.stem for path in alone} == {"certified_accuracy"}


def test_an_edge_blind_run_has_no_end(folder: Path) -> None:
    run = read_run(folder / "blind", "blind")
    assert curve_range([run]) == 10
    assert set(run.curve("edge-blind", "radius", 10).certified) == {6}
    assert "no noise" in report_page([run], {})


def test_certificates_that_hold_with_certainty(folder: Path) -> None:
    """As a vote over parts of the graph gives them: no alpha, no noise, removals cost less."""
    run = read_run(folder / "even", "even")
    rows = [row | {"method": "voting", "alpha": 0.0, "removes_radius": row["radius"] + 1} for row in run.rows]
    settings = {**run.settings, "p_add": None, "p_remove": None, "noise": None, "method": "voting"}
    certain = replace(run, rows=rows, settings=settings, readings={"voting": run.readings["influence"]})
    assert (certain.noise, certain.symmetric) == ("no noise", False)
    page = report_page([certain], {})
    assert "These proofs hold with certainty" in page
    assert "smoothed classifier answers" not in page


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "a\u2028b", "&amp;", 'say "x"', "\\u003c"])
def test_embedded_json_stays_inside_its_element(text: str) -> None:
    embedded = embedded_json({text: [text]})
    assert not set(embedded) & set("<>&\u2028\u2029")
    assert json.loads(embedded) == {text: [text]}


def test_the_page_asks_for_nothing_from_elsewhere(folder: Path) -> None:
    page = report_page([read_run(folder / "even", "even")], {})
    assert page.count("http://") == page.count('"http://www.w3.org/2000/svg"') == 1
    assert "https://" not in page
    assert "default-src &#x27;none&#x27;" in page
    assert len(page) < 150_000


def test_large_graphs_are_not_drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flipproof.report import page

    run = read_run(folder / "even", "even")
    drawn = len([one for one in page._data([run], {})["graphs"] if one["edges"] is not None])
    assert drawn == 12
    monkeypatch.setattr(page, "_DRAWN_NODES", 7)
    some = [one["nodes"] for one in page._data([run], {})["graphs"] if one["edges"] is not None]
    assert set(some) == {6, 7}
    monkeypatch.setattr(page, "_ALL_EDGES", 30)
    fewer = [one["count"] for one in page._data([run], {})["graphs"] if one["edges"] is not None]
    assert 0 < sum(fewer) <= 30
