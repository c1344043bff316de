"""What to cite: the entries are whole, versions agree, and every defence's references exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import flipproof
from flipproof.defences import defence_names
from flipproof.report.citing import bibtex, entries
from flipproof.report.wording import wording
from flipproof.runs.settings import CertifySettings
from support.command_line import call

ROOT = Path(__file__).parents[2]


def test_every_entry_is_whole_and_names_author_title_and_year() -> None:
    for key, entry in entries().items():
        assert re.fullmatch(r"@\w+\{[a-z0-9]+,\n(  \w+ +=? ?= \{.*\},?\n)+\}", entry), key
        assert entry.count("{") == entry.count("}")
        assert {"author", "title", "year"} <= set(re.findall(r"^  (\w+)", entry, re.MULTILINE))
        assert not re.search(r"[^\x00-\x7f]", entry)


def test_defences_cite_entries_that_exist() -> None:
    cited = {key for name in defence_names() for key in wording(name).references}
    assert cited <= set(entries())
    assert {"gao2020certified", "xia2024gnncert", "jin2020certified"} <= cited


def test_the_citation_file_and_the_entry_have_the_package_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == flipproof.__version__
    assert f"note    = {{Software, version {flipproof.__version__}}}" in entries()["flipproof"]
    assert citation["title"] in entries()["flipproof"]
    assert citation["references"][0]["doi"] in entries()["gao2020certified"]


def test_a_run_is_exported_with_what_it_rests_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(monkeypatch, capsys, "export", folder / "even", folder / "blind", "--format", "bibtex")
    assert (done.code, done.err) == (0, "")
    keys = re.findall(r"^@\w+\{(\w+),", done.out, re.MULTILINE)
    assert keys == ["flipproof", "gao2020certified", "cohen2019certified", "bojchevski2020efficient", "hung2019rank"]
    assert bibtex([CertifySettings.read(folder / "blind")]) == entries()["flipproof"] + "\n"
