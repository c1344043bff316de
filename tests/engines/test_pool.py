"""All cores of this machine: the same votes as one process, whatever dies, fails or is given up in between."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import flipproof as fp
from flipproof.engines import Engine, Processes, ThisProcess, local_engine
from flipproof.engines.pool import one_thread

ENGINES: list[Callable[[], Engine]] = [ThisProcess, lambda: Processes(2), lambda: Processes(3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_closure_needs_no_pickling_and_every_task_is_done_once(engine):
    results = list(engine().run(lambda task: task * 10, range(50)))
    assert sorted(results) == [(task, task * 10) for task in range(50)]


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize(("seconds", "at_once"), [(0.03, 1), (0.0, 16)])
def test_tasks_are_taken_as_workers_become_free(engine, seconds, at_once):
    taken = itertools.count()
    results = engine().run(lambda task: time.sleep(seconds), taken)
    for number, _ in enumerate(results):
        if number == 20:
            break
    ahead = next(taken) - 21
    results.close()
    assert ahead <= 2 * 3 * at_once
    assert multiprocessing.active_children() == []


def test_what_is_done_before_a_failure_is_handed_out():
    """Also where tasks were handed out several at a time."""

    def fails(task):
        if task == 60:
            raise fp.InputError("task 60 is bad")
        return task

    finished = []
    with pytest.raises(fp.InputError, match=r"^task 60 is bad$"):
        finished += (task for task, _ in Processes(1).run(fails, range(100)))
    assert finished[:60] == list(range(60))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_task_raises_is_raised_and_workers_end(engine):
    def fails(task):
        if task == 3:
            raise fp.InputError("task 3 is bad")
        return task

    with pytest.raises(fp.InputError, match=r"^task 3 is bad$"):
        list(engine().run(fails, range(10)))
    assert multiprocessing.active_children() == []


def test_an_exception_that_cannot_be_pickled_is_told_in_words():
    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def fails(task):
        raise Odd(1, lambda: 2)

    with pytest.raises(RuntimeError, match=r"Odd: 1 and "):
        list(Processes(2).run(fails, range(3)))


@pytest.mark.parametrize(("fatal", "tasks"), [(4, 8), (60, 100)])
def test_a_worker_that_dies_is_replaced_and_no_task_is_lost(tmp_path, fatal, tasks):
    def dies_once(task):
        if task == fatal and not (tmp_path / "died").exists():
            (tmp_path / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task * task

    assert sorted(Processes(2).run(dies_once, range(tasks))) == [(task, task * task) for task in range(tasks)]
    assert (tmp_path / "died").exists()


def test_a_task_that_kills_every_worker_is_given_up():
    def dies(task):
        if task == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return task

    with pytest.raises(fp.InputError, match="was killed by signal 9, 3 times over the same graph"):
        list(Processes(2).run(dies, range(8)))
    assert multiprocessing.active_children() == []


def test_workers_use_one_thread_each():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert {threads for _, threads in Processes(2).run(lambda task: torch.get_num_threads(), range(4))} == {1}
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


PARENT = """
import os, sys, time
from flipproof.engines import Processes
def work(task):
    os.write(1, f"{os.getpid()}\\n".encode())  # in one piece, whoever else writes
    time.sleep(0.2 if sys.argv[1] == "short" else 60)
for _ in Processes(2).run(work, range(1000)):
    pass
"""


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_end_with_a_parent_that_was_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT, "short"], stdout=subprocess.PIPE, text=True) as parent:
        pids = {int(parent.stdout.readline()) for _ in range(2)}
        parent.kill()
        deadline = time.monotonic() + 20
        while any(map(running, pids)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(running, pids))


def test_ctrl_c_ends_workers_in_the_middle_of_a_task():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "long"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as parent:
        pids = {int(parent.stdout.readline()) for _ in range(2)}
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of them
        _, errors = parent.communicate(timeout=20)
        assert errors.count("KeyboardInterrupt") == 1
        assert not any(map(running, pids))


def test_where_a_process_cannot_be_forked(monkeypatch, capsys):
    network = fp.SmoothedClassifier(fp.models.GCN(1, 2, seed=0).eval(), fp.EdgeNoise(keep=0.8))
    black_box = fp.SmoothedClassifier(lambda graphs: [0] * len(graphs), fp.EdgeNoise(keep=0.8), num_classes=2)
    assert [type(network.engine(workers)) for workers in (None, 1, 2)] == [ThisProcess, ThisProcess, Processes]
    network.classifier.device = torch.device("cuda")  # as if it were there
    assert [type(defence.engine(2)) for defence in (network, black_box)] == [ThisProcess, Processes]
    network.engine(2, quiet=False)
    assert "flipproof: the model is on a GPU: using one worker\n" in capsys.readouterr().err
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert [type(local_engine(workers, quiet=False)) for workers in (1, 2)] == [ThisProcess, ThisProcess]
    assert capsys.readouterr().err == "flipproof: this system cannot fork a process safely: using one worker\n"
    with pytest.raises(fp.InputError, match="workers must be an integer of at least 1; got 0"):
        Processes(0)


AFTER_TORCH = """
import numpy as np, torch
import flipproof as fp
torch.set_num_threads(2)
torch.ones(3_000_000).add(1).sum()
smooth = fp.SmoothedClassifier(
    lambda graphs: [int(graph.num_edges > 40) for graph in graphs],
    fp.EdgeNoise(keep=0.6),
    num_classes=2,
    features=lambda graph: np.ones((graph.num_nodes, 1)),
)
graphs = [fp.Graph(16, [(node, node + 1) for node in range(15)])] * 2
print(len(smooth.certify_all(graphs, samples=2000, method="votes", seed=0, workers=2)))
"""


def test_workers_do_not_wait_for_threads_that_torch_had_in_the_parent():
    """Regression: a black box with a function of features, after torch had computed on two threads, never came to an end."""
    done = subprocess.run([sys.executable, "-c", AFTER_TORCH], capture_output=True, text=True, timeout=120)
    assert done.stdout == "2\n", done.stderr
