"""Options from a file: the same as typed, and what is typed prevails."""

from __future__ import annotations

import json

import pytest
import typer

from flipproof.cli.app import parser


@pytest.fixture
def flipproof(monkeypatch, command, tmp_path):
    monkeypatch.chdir(tmp_path)
    return command


def _radius(outcome):
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def test_a_file_stands_for_typed_options(flipproof, tmp_path):
    (tmp_path / "run.toml").write_text(
        "keep = 0.8\nseed = 3\n[radius]\np-lower = 0.99\njson = true\n[train]\ncopies = 4\n"
    )
    typed = flipproof("radius", "--keep", 0.8, "--p-lower", 0.99, "--json")
    assert _radius(flipproof("radius", "--config", "run.toml")) == _radius(typed)
    assert _radius(flipproof("radius", "--config=run.toml")) == _radius(typed)


def test_what_is_typed_prevails(flipproof, tmp_path):
    (tmp_path / "run.toml").write_text("keep = 0.8\n[radius]\np_lower = 0.99\njson = true\n")
    assert _radius(flipproof("radius", "--config", "run.toml", "--p-lower", 0.9))["p_lower"] == 0.9
    assert _radius(flipproof("radius", "--p-lower=0.9", "--config", "run.toml"))["p_lower"] == 0.9


def test_a_typed_noise_replaces_the_whole_noise(flipproof, tmp_path):
    (tmp_path / "run.toml").write_text("keep = 0.8\n[radius]\np_lower = 0.99\njson = true\n")
    found = _radius(flipproof("radius", "--config", "run.toml", "--add", 0.125, "--remove", 0.25))
    assert (found["p_add"], found["p_remove"]) == (0.125, 0.25)


def test_the_section_of_a_command_prevails_over_the_rest(flipproof, tmp_path):
    (tmp_path / "run.toml").write_text(
        "keep = 0.8\njson = true\n[radius]\np_lower = 0.99\nadd = 0.125\nremove = 0.25\n"
    )
    assert _radius(flipproof("radius", "--config", "run.toml"))["p_add"] == 0.125


def test_flags_can_be_switched_off(flipproof, tmp_path):
    (tmp_path / "run.toml").write_text("keep = 0.8\np_lower = 0.99\njson = false\n")
    assert flipproof("radius", "--config", "run.toml").out.startswith("radius ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("keep = ", "--config must be a file in TOML; run.toml cannot be read: Invalid value"),
        ("kep = 0.9", "run.toml: kep is no option of any command"),
        ("[radios]\nkeep = 0.9", "run.toml: [radios] is no command (flipproof has attack"),
        ("[radius]\nsamples = 9", "run.toml: samples is no option of flipproof radius (it has add"),
        ("[train]\nradius = 9", "run.toml: radius is no option of flipproof train"),
        ("keep = [0.9, 0.8]", "run.toml: keep must be a text or a number; got [0.9, 0.8]"),
        ("[radius]\njson = 1", "run.toml: json must be true or false; got 1"),
        ("keep = 0.3\n[radius]\np_lower = 0.9", "keep must lie in (0.5, 1)"),
    ],
)
def test_files_that_say_something_else_are_refused(flipproof, tmp_path, text, sentence):
    (tmp_path / "run.toml").write_text(text)
    outcome = flipproof("radius", "--config", "run.toml")
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.out == ""


def test_a_file_that_is_not_there(flipproof):
    outcome = flipproof("radius", "--config", "run.toml")
    assert outcome.code == 2
    assert "run.toml cannot be read: No such file" in outcome.err


def test_every_command_takes_a_file():
    commands = typer.main.get_command(parser()).commands
    for name in commands.keys() - {"benchmark"}:  # a benchmark is nothing but its file
        assert any("--config" in option.opts for option in commands[name].params), name
