"""The house is kept in order: one meaning per module name, and no defence is spoken of outside its rooms."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import flipproof
from flipproof.defences import defence_classes, defence_names

PACKAGE = Path(flipproof.__file__).parent
ROOT = Path(__file__).parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def test_no_two_modules_have_the_same_name() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        if path.name != "__init__.py":
            places[path.name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_voting_is_spoken_of_in_its_rooms_alone() -> None:
    """Above the defences everything knows the protocol and no single defence."""
    rooms = ("defences/", "certificates/", "training/", "noise/groups.py", "__init__.py")
    found = [str(path.relative_to(PACKAGE)) for path in SOURCES if re.search("voting", path.read_text(), re.IGNORECASE)]
    assert [path for path in found if not path.startswith(rooms)] == []
    assert len(found) > 4, "the search finds something"


def test_every_defence_declares_whole_sentences_for_its_options() -> None:
    for defence in defence_classes():
        for option in (*defence.settings, *defence.training_options, *defence.asking):
            assert re.fullmatch(r"[A-Z].* .*\.", option.help), (defence.name, option.name)
    assert [defence.name for defence in defence_classes()] == list(defence_names())


def test_the_tests_mirror_the_package() -> None:
    """A folder of tests is a package of flipproof, or one of those that look at the whole."""
    whole = {"guarantee", "journeys", "support", "__pycache__"}
    packages = {path.parent.name for path in PACKAGE.rglob("__init__.py")}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders - whole <= packages
