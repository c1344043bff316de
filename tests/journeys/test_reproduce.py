"""The paper's experiment at a tiny size: killed, continued, repeated; and refused where it must be."""

import contextlib
import hashlib
import io
import re
import shutil
import signal
import sqlite3
import sys

import pytest

from flipproof.cli import main
from flipproof.runs.run_folder import CertifySettings
from flipproof.studies.paper_experiment import Settings
from support.browser import chromium, opened
from support.command_line import call
from support.forked import Server
from support.tiny_paper import TINY

REPRODUCE = ["reproduce", "--quick", "--out"]


def output_of(out):
    """What it says in this process, without workers."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        patch.setattr(sys, "argv", ["flipproof", *REPRODUCE, str(out), "--workers", "1"])
        patch.setattr(Settings, "quick", lambda seed: TINY)
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code, said.getvalue()
    return said.getvalue()


def contents(folder):
    """Hashes of files, and of the rows of every store."""
    hashes: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".sqlite":
            with sqlite3.connect(path) as store:
                rows = store.execute("SELECT item, sha256 FROM finished")
                hashes[str(path.relative_to(folder))] = sorted(rows, key=repr)
        elif path.is_file():
            hashes[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return hashes


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "out"
    return out, output_of(out)


def test_leaves_figures_numbers_and_claims(finished):
    out, output = finished
    for name in ("beta", "alpha", "samples", "gain"):
        for kind in ("svg", "pdf", "png", "csv"):
            assert (out / "figures" / f"{name}.{kind}").stat().st_size > 500
    page = (out / "index.html").read_text()
    assert page.count("<svg") == 4
    names = "http://(www.w3|purl|creativecommons).org|https://matplotlib.org"
    assert "http" not in re.sub(names, "", page)
    assert "A lower beta gives a lower accuracy" in (out / "claims.md").read_text()
    assert "isomorphic to a training graph" in output
    assert "gcn-0.7: done (" in output
    assert str(out / "index.html") in output


def test_the_page_in_a_browser(finished):
    out, _ = finished
    with chromium() as browser:
        for width, scheme in ((1200, "dark"), (390, "light")):
            with opened(browser, out / "index.html", width=width, scheme=scheme) as shown:
                page = shown.page
                assert page.locator("figure svg").count() == 4
                assert page.locator("table").first.locator("tbody tr").count() == 6
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.fixture
def drawn(monkeypatch):
    """Figures are there and not drawn again: the same numbers give the same ones (tests/report)."""
    monkeypatch.setattr("flipproof.studies.paper_page.curves_figure", lambda *shown, **options: [])


def test_second_run_reuses_everything(finished, drawn):
    out, _ = finished
    made = [path for kind in ("*.safetensors", "certificates.csv") for path in out.rglob(kind)]
    times = {path: path.stat().st_mtime_ns for path in made}
    assert len(made) == 6 + 6  # models, and their runs
    before = contents(out)
    assert ": done (" not in output_of(out)
    assert {path: path.stat().st_mtime_ns for path in made} == times
    assert contents(out) == before


def test_its_runs_are_runs(finished, tmp_path, monkeypatch, capsys):
    """Every model can be certified further, and every run opened, with the other commands."""
    out = tmp_path / "out"  # other tests compare with the folder as it was made
    shutil.copytree(finished[0], out)
    settings = CertifySettings.read(out / "runs" / "gin-0.7-0")
    assert settings.defence == {"name": "smoothing", "add": pytest.approx(0.3), "remove": pytest.approx(0.3)}
    words = ["--samples", 200, "--method", "paper", "--out", out / "runs" / "gin-0.7-0"]
    done = call(monkeypatch, capsys, "certify", "--model", out / "models" / "gin-0.7-0", *words)
    assert done.code == 0, done.err
    assert "asking" not in done.err


@pytest.mark.parametrize(
    ("kill", "awaited"),
    [
        pytest.param(signal.SIGKILL, "models/*/weights.safetensors", marks=pytest.mark.guarantee, id="training"),
        pytest.param(signal.SIGKILL, "runs/*/evidence.sqlite-wal", id="sampling"),
        pytest.param(signal.SIGINT, "runs/*/certificates.csv", marks=pytest.mark.guarantee, id="Ctrl-C"),
    ],
)
def test_killed_and_continued(finished, tmp_path, drawn, kill, awaited):
    out, made = tmp_path / "out", ["runs", "index.html", "claims.*"]
    if awaited.startswith("models"):
        made += ["models"]
    shutil.copytree(finished[0], out, ignore=shutil.ignore_patterns(*made))
    server = Server(tmp_path, "support.tiny_paper")
    ended = server(*REPRODUCE, "out", "--workers", 2, killed_after=lambda: any(out.glob(awaited)), by=kill)
    assert ended.code == (-signal.SIGKILL if kill == signal.SIGKILL else 130), ended.err
    if kill == signal.SIGINT:
        assert "continue with: flipproof" in ended.err
        assert "Traceback" not in ended.err
    server.wait()
    assert not (out / "index.html").exists()
    output_of(out)  # what two workers began, one ends with the same bytes
    assert contents(out) == contents(finished[0])


def test_a_folder_with_other_settings_is_refused(finished, monkeypatch, capsys):
    refused = call(monkeypatch, capsys, "reproduce", "--out", finished[0])
    assert refused.code == 2
    assert "holds a run with networks = 1; asked for networks = 3" in refused.err
    assert refused.err.count("\n") == 1
