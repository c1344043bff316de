"""Templates: text stays text. What to cite: the entries are whole, versions agree, and every defence's references exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

import flipproof
from flipproof.defences import defence_names
from flipproof.report.templates import _environment, bibtex, references
from flipproof.report.wording import wording
from flipproof.runs.run_folder import CertifySettings
from support.command_line import Command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("text", ["</script>", "<!--", "]]>", "a\u2028b", "&amp;", 'say "x"', "\\u003c"])
def test_embedded_json_stays_inside_its_element(text: str) -> None:
    embedded = _environment().from_string("{{ value|tojson }}").render(value={text: [text]})
    assert not set(embedded) & set("<>&\u2028\u2029")
    assert json.loads(embedded) == {text: [text]}


def test_cells_are_escaped_and_marked() -> None:
    table = str(_environment().get_template("table.html").module.table([["<a>"], ["yes"], ["<b>"]], {"yes": "good"}))
    assert '<th scope="col">&lt;a&gt;</th>' in table
    assert '<td class="good">yes</td>' in table
    assert "<td>&lt;b&gt;</td>" in table


def test_every_entry_is_whole_and_names_author_title_and_year() -> None:
    for key, entry in references().items():
        assert re.fullmatch(r"@\w+\{[a-z0-9]+,\n(  \w+ +=? ?= \{.*\},?\n)+\}", entry), key
        assert entry.count("{") == entry.count("}")
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+)", entry, re.MULTILINE))
        assert not re.search(r"[^\x00-\x7f]", entry)


def test_defences_cite_entries_that_exist() -> None:
    cited = {key for name in defence_names() for key in wording(name).references}
    assert cited <= set(references())
    assert {"gao2020certified", "xia2024gnncert", "jin2020certified"} <= cited


def test_the_citation_file_and_the_entry_have_the_package_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == flipproof.__version__
    assert f"note    = {{Software, version {flipproof.__version__}}}" in references()["flipproof"]
    assert citation["title"] in references()["flipproof"]
    assert citation["references"][0]["doi"] in references()["gao2020certified"]


def test_a_run_is_exported_with_what_it_rests_on(folder: Path, command: Command) -> None:
    done = command("export", folder / "even", folder / "blind", "--format", "bibtex")
    assert (done.code, done.err) == (0, "")
    keys = re.findall(r"^@\w+\{(\w+),", done.out, re.MULTILINE)
    assert keys == ["flipproof", "gao2020certified", "cohen2019certified", "bojchevski2020efficient", "hung2019rank"]
    assert bibtex([CertifySettings.read(folder / "blind")]) == references()["flipproof"] + "\n"
