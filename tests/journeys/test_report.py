"""The report of real runs, opened in a real browser: what a reader does with mouse, keyboard, phone and printer."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipproof.certificates.certificate import ClassCell, WeakSpots
from flipproof.report.content import Reading, percent
from flipproof.report.reading import read_run, with_attacks, with_lines
from flipproof.report.report_page import report_page
from flipproof.report.templates import asset
from support.browser import chromium, opened
from support.certified_runs import DATA, RING, WHEEL, make_runs, run_command

ROWS = "#table tbody tr"


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder with the pages ``one.html``, and ``several.html`` of three runs."""
    made = make_runs(tmp_path_factory.mktemp("user"))
    runs = with_lines(with_attacks(read(made, "even", "uneven", "blind"), made / "attack"))
    (made / "one.html").write_text(report_page(runs[:1]), encoding="utf-8")
    (made / "several.html").write_text(report_page(runs), encoding="utf-8")
    return made


@pytest.fixture
def page(browser, folder):
    """The report of one run, opened."""
    with opened(browser, folder / "one.html") as shown:
        yield shown.page


@pytest.fixture
def several(browser, folder):
    """The report of three runs, opened."""
    with opened(browser, folder / "several.html") as shown:
        yield shown.page


def read(folder, *names: str):
    return [read_run(folder / name, name) for name in names]


def column(page, number):
    return page.locator(f"{ROWS} td:nth-child({number})").all_inner_texts()


def test_headline_and_every_part_in_place(page, folder):
    (run,) = read(folder, "even")
    right = int((run.right_radii() >= 0).sum())
    assert f"{right} of 12 graphs" in page.inner_text(".lead")
    assert "1 in 1,000" in page.inner_text(".lead")
    assert page.locator(ROWS).count() == 12
    for part in ("#chart svg", "#legend button", "#panels svg"):
        assert page.locator(part).count() >= 1, part
    assert "edge-blind" in page.inner_text("#legend")
    # no sideways scrolling of the page itself; headings and controls have names
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("[...document.querySelectorAll('main h2, main h3')].every(h => h.innerText.trim())")
    named = "one => one.labels?.length || one.ariaLabel || one.textContent.trim()"
    assert page.evaluate(f"[...document.querySelectorAll('button, input, select')].every({named})")


def test_names_are_text_and_nothing_else(browser, folder):
    for name in ("one.html", "several.html"):
        with opened(browser, folder / name) as shown:
            shown.page.click(f"{ROWS}:nth-child(2) .open")
            assert shown.page.inner_text("#detail-title") == f"<u>1 & 'co'.edges: {WHEEL}"
            assert {RING, WHEEL} <= set(column(shown.page, 2))
            assert DATA in shown.page.inner_text("body")
            assert shown.page.locator("img, u, b > script").count() == 0
            assert shown.page.evaluate("document.scripts.length") == 2


def test_filters(page, folder):
    (run,) = read(folder, "even")
    radii = [row["radius"] for row in run.rows]
    states = ["abstained" if row["predicted"] is None else "right" if row["correct"] else "wrong" for row in run.rows]
    page.select_option("#class", WHEEL)
    assert page.locator(ROWS).count() == 6
    assert page.inner_text("#count") == "6 of 12 graphs"
    page.fill("#search", "<u>1 &")
    assert page.locator(ROWS).count() == 1
    page.click("#filters button[type=reset]")
    page.locator(ROWS).nth(11).wait_for()
    for state in ("right", "wrong", "abstained"):
        page.select_option("#answer", state)
        assert page.locator(ROWS).count() == states.count(state)
    page.select_option("#answer", "")
    page.fill("#least", "1")
    assert page.locator(ROWS).count() == sum(radius >= 1 for radius in radii) > 0


def test_a_graph_opens_with_votes_certificates_and_the_attack(page, folder):
    (run,) = with_attacks(read(folder, "even"), folder / "attack")
    wheel, flips = run.rows[1], run.attacks[1]["defended"].flips
    removed = [pair for pair in flips if list(pair) in run.graphs[1].edges.tolist()]
    assert flips
    page.click(f"{ROWS}:nth-child(2) td:nth-child(3)")  # anywhere in the row
    detail = page.locator("#detail")
    assert detail.is_visible()
    assert detail.locator(".node").count() == wheel["nodes"]
    assert detail.locator(".edge.removed").count() == len(removed)
    assert detail.locator(".edge.added").count() == len(flips) - len(removed)
    assert detail.locator(".edge").count() == wheel["edges"] + len(flips) - len(removed)
    assert f"{max(wheel['counts'])} (" in detail.locator(".votes").inner_text()
    table = detail.locator(".methods:not(.weak) tbody tr").all_inner_texts()
    assert [line.split()[0] for line in table] == ["influence", "votes", "paper"]
    for line, method in zip(table, run.readings, strict=True):
        assert line.split("\t")[2] == str(run.readings[method][1].radius)
    detail.locator(".choices button", has_text="none").click()
    assert detail.locator(".edge.added, .edge.removed").count() == 0
    # what the page shows as a lower bound is not above it
    stated = float(table[0].split("\t")[-1])
    assert wheel["p_lower"] - 1e-4 <= stated <= wheel["p_lower"]


def test_weak_spots_are_drawn_and_told(browser, folder):
    (run,) = read(folder, "even")
    graph = run.graphs[1]
    removed = tuple(graph.edges[0].tolist())
    present = set(map(tuple, graph.edges.tolist()))
    added = next((u, v) for u in range(9) for v in range(u + 1, graph.num_nodes) if (u, v) not in present)
    weights = np.linspace(-1, 2, graph.num_nodes)
    rows = (("no flip", ClassCell(0)), ("then", 7))
    spots = WeakSpots(0, (removed, added), False, weights, 0.5, "A caption", ("After", "What"), rows)
    row = run.rows[1] | {"radius": 1}
    for succeeds, width, told in (
        (True, 1200, "known to change the answer: remove"),
        (False, 390, "The worst 2 flips found: remove"),
    ):
        path = folder / "weak.html"
        weak = {1: replace(spots, succeeds=succeeds)}
        path.write_text(report_page([replace(run, rows=[run.rows[0], row], weak_spots=weak)]), encoding="utf-8")
        with opened(browser, path, width=width) as shown:
            page = shown.page
            page.click(f"{ROWS}:nth-child(2) .open")
            detail = page.locator("#detail")
            assert detail.locator("svg[role] .node.for").count() == int((weights >= 0).sum())
            assert detail.locator("svg[role] .node.against").count() == int((weights < 0).sum())
            assert detail.locator("svg[role] .halo").count() == len({*removed, *added})
            assert detail.locator(".key.weights li").count() == 5
            assert told in detail.inner_text()
            assert ("No smaller attack exists" in detail.inner_text()) == succeeds
            lines = detail.locator(".weak tbody tr").all_inner_texts()
            assert [line.split("\t") for line in lines] == [["no flip", RING], ["then", "7"]]
            assert page.evaluate("document.getElementById('detail').scrollWidth <= innerWidth")
            detail.locator(".choices button", has_text="none").click()
            assert detail.locator(".halo, .node.for, .edge.added").count() == 0
            page.keyboard.press("ArrowLeft")  # the other graph has no weak spots: as before
            assert detail.locator(".weak, .choices").count() == 0


def test_a_graph_opens_by_keyboard_alone(page):
    page.keyboard.press("Tab")  # the link that skips to the table
    page.keyboard.press("Enter")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className") == "open":
            break
    page.keyboard.press("Enter")
    assert page.locator("#detail").is_visible()
    assert page.evaluate("document.getElementById('detail').contains(document.activeElement)")
    first = page.inner_text("#detail-title")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#detail-title") != first
    page.keyboard.press("Escape")
    assert not page.locator("#detail").is_visible()
    assert page.evaluate("document.activeElement.className") == "open"  # and the focus is back


def test_the_chart_by_keyboard_and_mouse(page, folder):
    (run,) = read(folder, "even")
    counts = run.curve(top=4).certified
    page.focus("#chart")
    page.keyboard.press("Home")
    assert f"({counts[0]} of 12, 95% interval" in page.inner_text("#readout")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#readout").startswith("Against any 2 flips")
    assert f"({counts[2]} of 12, 95% interval 5–57%)" in page.inner_text("#readout")
    page.locator("#chart svg").hover(position={"x": 60, "y": 100})
    assert page.inner_text("#readout").startswith("Without an attack")
    attacks = page.locator("#chart path.step.attack").count()
    page.select_option("#method", "all")
    assert page.locator("#chart path.step").count() == 3 + attacks + 1
    assert page.locator("#chart path.whiskers").count() == 3 + attacks + 1
    page.locator("#legend button").first.click()
    assert page.locator("#chart path.step").count() == 2 + attacks + 1
    page.uncheck("#band")
    assert page.locator("#chart path.whiskers, #chart path.band").count() == 0


def test_attacks_are_shown_beside_the_certificates_of_the_same_graphs(page, folder):
    (run,) = with_attacks(read(folder, "even"), folder / "attack")
    certified = run.certified_of_attacked
    assert certified.graphs == len(run.attacks) == 4
    page.focus("#chart")
    for r, key in enumerate(("Home", "ArrowRight", "ArrowRight")):
        page.keyboard.press(key)
        told = page.inner_text("#readout")
        assert f"of the 4 graphs attacked {percent(certified.certified[r], 4)}" in told
        for role, curve in run.under_attack.items():
            assert f"on {run.targets[role]} (4 graphs) {percent(curve.certified[r], 4)}" in told
            assert role != "defended" or curve.certified[r] >= certified.certified[r]
    assert page.locator("#chart path.step.attack").count() == len(run.under_attack)


def test_marks_of_every_panel_are_reached_and_opened_by_keyboard(browser, folder):
    (run,) = read(folder, "even")
    sizes = sorted({(row["nodes"], radius) for row, radius in zip(run.rows, run.right_radii().tolist(), strict=True)})
    with opened(browser, folder / "several.html") as shown:
        page = shown.page
        for panel in page.locator("#panels .panel").all():
            assert panel.locator(".mark[tabindex='0']").count() == 1  # one stop of the Tab key
            first = panel.locator(".mark[tabindex='0']")
            first.focus()
            assert panel.locator(".told").inner_text() == first.get_attribute("aria-label")
            page.keyboard.press("End")
            assert panel.locator(".told").inner_text() == panel.locator(".mark").last.get_attribute("aria-label")
            assert panel.locator(".mark[tabindex='0']").count() == 1
    with opened(browser, folder / "one.html") as shown:
        page = shown.page
        spots = page.locator("#row-radius-and-size .mark")
        assert spots.count() == len(sizes)
        spots.first.focus()
        page.keyboard.press("ArrowRight")
        told = page.inner_text("#row-radius-and-size .told")
        assert told != spots.first.get_attribute("aria-label")
        page.keyboard.press("Enter")
        assert page.locator("#detail").is_visible()
        assert page.inner_text("#detail-title").split(":")[0] in told
        page.locator("#detail .node").first.focus()
        page.keyboard.press("End")  # moves among the nodes, not among the graphs
        assert page.inner_text("#detail .told").startswith("Node ")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.classList.contains('mark')")  # and the focus is back


def test_the_sort_has_heads_and_a_control_of_its_own(browser, folder):
    def nodes():
        texts: list[str] = page.locator(f"{ROWS} td:nth-child(3)").all_text_contents()
        return list(map(int, texts))

    with opened(browser, folder / "one.html") as shown:
        page = shown.page
        head = page.locator("#table th button", has_text="Nodes")
        head.click()
        assert nodes() == sorted(nodes())
        assert page.locator("#table th[aria-sort='ascending']").inner_text().startswith("Nodes")
        head.press("Enter")  # it keeps the focus, and the keyboard sorts too
        assert nodes() == sorted(nodes(), reverse=True)
        page.locator("#table th button", has_text="Radius").click()
        radii = [-1 if text == "–" else int(text) for text in column(page, 6)]
        assert radii == sorted(radii, reverse=True)
        assert len(set(radii)) > 1
    with opened(browser, folder / "several.html", width=390) as shown:
        page = shown.page
        page.select_option("#sort", label="Nodes")
        assert nodes() == sorted(nodes())
        page.click("#direction")
        assert nodes() == sorted(nodes(), reverse=True)
        page.select_option("#sort", label="uneven: Radius")
        assert page.locator("#table th[aria-sort='descending']").count() == 1
        page.click("#filters button[type=reset]")
        page.locator("#table th[aria-sort]").wait_for(state="detached")
        assert page.input_value("#sort") == ""


def test_a_table_wider_than_the_page_says_that_it_scrolls(browser, folder):
    hint = "#graphs .hint"
    with opened(browser, folder / "several.html", width=390) as shown:
        page = shown.page
        assert page.locator(hint).is_visible()
        page.evaluate("document.querySelector('#graphs .scroll').scrollLeft = 9999")
        page.locator("#graphs .scroll.more").first.wait_for(state="detached")
        unbroken = "cells => cells.every(cell => getComputedStyle(cell).whiteSpace === 'nowrap')"
        assert page.locator("td.number").evaluate_all(unbroken)
    with opened(browser, folder / "one.html", width=1400) as shown:
        assert not shown.page.locator(hint).is_visible()


def test_differences_between_runs_are_tested(several):
    several.click("summary:has-text('more than chance')")
    lines = [line.split("\t") for line in several.locator("details[open] tbody tr").all_inner_texts()]
    assert [line[:2] for line in lines] == [[name, str(r)] for name in ("uneven", "blind") for r in range(4)]
    assert lines[1][2:] == ["+50 points", "6", "0", "0.031", "0.250"]


def test_page_and_script_round_alike(page):
    """Regression: 72% in the headline and 73% in the chart."""
    source = re.search(r"const percent = (\(count, total\) => \{.*?\n  \});", asset("report.js"), re.DOTALL)
    pairs = [[count, total] for total in (*range(1, 81), 160, 1000, 4096) for count in range(total + 1)]
    texts = page.evaluate(
        f"pairs => {{ const percent = {source[1]}; return pairs.map((pair) => percent(...pair)); }}", pairs
    )
    assert texts == [percent(*pair) for pair in pairs]
    line = percent(6, 12)
    assert f"edge-blind: {line}" in page.inner_text("#legend")
    assert line in page.locator(".tiles li").last.inner_text()


def test_no_radius_and_no_attack_are_told_in_words(browser, folder):
    """Regression: -1 beside a dash, and 0 for a graph on which no attack was needed."""
    (run,) = with_attacks(read(folder, "even"), folder / "attack")
    rows = [row | {"predicted": None, "radius": -1, "adds_radius": -1, "removes_radius": -1} for row in run.rows[:1]]
    rows += [row | {"adds_radius": row["radius"] + 1} for row in run.rows[1:]]
    first = run.rows[0]["graph"]
    readings = {name: {**read_by, first: Reading(None, -1, -1, -1, 0.1)} for name, read_by in run.readings.items()}
    path = folder / "abstains.html"
    path.write_text(report_page([replace(run, rows=rows, readings=readings)]), encoding="utf-8")
    with opened(browser, path) as shown:
        page = shown.page
        heads = page.locator("#table thead th").all_inner_texts()
        shown_rows = [line.split("\t") for line in page.locator(ROWS).all_inner_texts()]
        assert "-1" not in page.inner_text("#table")
        for name in ("Radius", "Additions", "Removals"):
            assert shown_rows[0][heads.index(name)] == "–"
        attacks = [line[heads.index("Attack")] for line in shown_rows]
        for row, text in zip(run.rows, attacks, strict=True):
            attack = run.attacks.get(row["graph"], {}).get("defended")
            assert text == ("" if attack is None else (str(attack.size or "–") if attack.success else "none"))
        assert {"–", "none", ""} <= set(attacks)
        page.click(f"{ROWS} .open")
        assert "-1" not in page.inner_text("#detail")


def test_light_dark_and_narrow(browser, folder):
    background = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, folder / "one.html", scheme="dark") as shown:
        dark = shown.page.evaluate(background)
        shown.page.click("#theme")
        light = shown.page.evaluate(background)
        assert dark != light
        shown.page.reload()
        assert shown.page.evaluate(background) == light  # kept
        shown.requests.pop()
    with opened(browser, folder / "several.html", width=390) as shown:
        page = shown.page
        assert page.evaluate(background) == light
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        cells = "cells => Math.min(...cells.map(cell => cell.getBoundingClientRect().width))"
        assert page.locator("#row-additions-and-removals rect.heat").evaluate_all(cells) >= 35
        page.click(f"{ROWS}:nth-child(2) .open")
        assert page.evaluate("document.getElementById('detail').scrollWidth <= innerWidth")


def test_several_runs_side_by_side(several, folder):
    runs = read(folder, "even", "uneven", "blind")
    assert several.locator("article.card h3").all_inner_texts() == ["even", "uneven", "blind"]
    assert several.locator("#table th.group").all_inner_texts() == ["even", "uneven", "blind"]
    assert several.locator("#chart path.step:not(.attack, .thin)").count() == 3
    several.select_option("#attacker", "removes_radius")
    several.focus("#chart")
    several.keyboard.press("End")
    top = int(max(run.right_radii(attacker="removes_radius").max() for run in runs[:2])) + 1
    assert several.inner_text("#readout").startswith(f"Against any {max(4, top)} removals")
    several.select_option("#run", "1")
    several.select_option("#answer", "right")
    assert several.locator(ROWS).count() == int((runs[1].right_radii() >= 0).sum())
    several.click("#filters button[type=reset]")
    several.click(f"{ROWS}:nth-child(2) .open")
    assert several.locator("#detail .card h3").all_inner_texts() == ["even", "uneven", "blind"]
    assert "ignores edges" in several.locator("#detail .card").nth(2).inner_text()
    assert several.locator("#detail .card").nth(1).locator("svg[aria-label^='which numbers']").count() == 1


def test_it_prints_light_and_whole(browser, folder):
    with opened(browser, folder / "one.html", scheme="dark") as shown:
        page = shown.page
        page.emulate_media(media="print")
        assert not page.locator("#theme").is_visible()
        assert not page.locator("#filters").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.pdf().startswith(b"%PDF")


def test_the_command_tells_what_it_wrote(folder, capsys):
    capsys.readouterr()
    run_command(folder, "report", "even", "blind", "--attack", "attack", "--attack", "attack", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == "even/comparison/report.html"
    page = (folder / told["report"]).read_text()
    assert "which is right on 6 of 12 graphs (50%)" in page
    assert '"underAttack":{"defended"' in page
    assert {Path(path).suffix for path in told["figures"]} == {".svg", ".pdf", ".png", ".csv"}
    assert all((folder / path).stat().st_size > 0 for path in told["figures"])
