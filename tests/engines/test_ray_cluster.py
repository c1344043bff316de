"""Ray: the same bytes as one process, also when workers and nodes are lost."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

import flipproof as fp
from flipproof.engines import RayCluster
from support.command_line import OWN_MODEL, write_graphs

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

GRAPHS = [fp.Graph(5 + k, [(0, 1), (1, 2), (2, 3), (3, 4)][: 2 + k % 3]) for k in range(4)]


def smooth_classifier(folder, deaths=0):
    """A classifier that kills its worker so many times; defined inside, as the workers do not know this module."""

    driver = os.getpid()

    def parity(graphs):
        if os.getpid() != driver and len(list(folder.glob("died-*"))) < deaths:
            (folder / f"died-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [graph.num_edges % 2 for graph in graphs]

    return fp.SmoothedClassifier(parity, fp.EdgeNoise(keep=0.8), num_classes=2)


# a cluster that dies takes the process that started it along: such tests stay out of make test
@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray")
    with RayCluster(workers=2) as running:
        yield running


OPTIONS: dict[str, Any] = {"samples": 2_100, "seed": 1, "method": "votes"}


@pytest.mark.guarantee
def test_certificates_are_those_of_one_process(cluster, tmp_path):
    smooth = smooth_classifier(tmp_path)
    assert smooth.certify_all(GRAPHS, engine=cluster, **OPTIONS) == smooth.certify_all(GRAPHS, **OPTIONS)
    assert str(cluster) == "a Ray cluster of 1 node and 2 cores"


@pytest.mark.guarantee
def test_killed_workers_change_nothing(cluster, tmp_path):
    expected = smooth_classifier(tmp_path).certify_all(GRAPHS, **OPTIONS)
    dying = smooth_classifier(tmp_path, deaths=2)
    assert dying.certify_all(GRAPHS, engine=cluster, **OPTIONS) == expected
    assert len(list(tmp_path.glob("died-*"))) == 2


@pytest.mark.guarantee
def test_what_a_task_raises_is_raised_as_it_was(cluster):
    def fails(task):
        from flipproof.errors import InputError

        if task == 3:
            raise InputError("task 3 is bad")
        return task

    with pytest.raises(fp.InputError, match=r"^task 3 is bad$"):
        list(cluster.run(fails, range(6)))


def test_without_ray_the_line_that_installs_it(tmp_path):
    """In a process of its own: a cluster that runs in this one would lose Ray, too."""
    write_graphs(tmp_path / "graphs")
    (tmp_path / "own.py").write_text(OWN_MODEL)
    script = "import sys; sys.modules['ray'] = None; from flipproof.cli import main; main()"
    certify = ["certify", "--model", "own:make", "--data", "graphs", "--keep", "0.8", "--out", "run", "--engine", "ray"]
    done = subprocess.run(
        [sys.executable, "-c", script, *certify], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("flipproof: --engine ray needs Ray, which is not installed (pip install ray)\n")
    assert not (tmp_path / "run").exists()
