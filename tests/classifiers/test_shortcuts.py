"""A shortcut that gives other answers than the model is not taken: the model itself is asked, about every graph of the run."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric import nn as pyg

import flipproof as fp
from flipproof.classifiers.edges import NeighbourLists
from flipproof.classifiers.guard import ShortcutDisagrees, nodes_batch
from flipproof.classifiers.layers import CompiledLayer, DegreeRows
from flipproof.classifiers.shortcuts import Shortcut
from flipproof.classifiers.torch_module import DenseClassifier
from flipproof.noise import NoisyBatch
from flipproof.runs.saved_run import problems_of_run
from support.guarded import HONEST, MUTANTS, NOISES, ODD, REFUSED, TREE, Applied, ByBatch, Zoo

NOISE = NOISES[0]
SAYS_SO = "the model itself is asked about every graph of this run"


def smoothed(model: nn.Module, noise: fp.EdgeNoise = NOISE) -> fp.SmoothedClassifier:
    return fp.SmoothedClassifier(model, noise, features="degree")


def model(part: nn.Module | None = None) -> nn.Module:
    return ByBatch(part or nn.ReLU())


def declining(made: nn.Module) -> nn.Module:
    made.dense_twin = False  # type: ignore[assignment]
    return made


# ---- a twin that errs ------------------------------------------------------------------------------------------------------


def wrong_weight(layer: Any, output: torch.Tensor) -> torch.Tensor:
    return output * 1.01


def missing_bias(layer: Any, output: torch.Tensor) -> torch.Tensor:
    return output - 0.1


@contextmanager
def erring(mistake: Callable[[Any, torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """While entered, every convolution of every dense twin makes a mistake."""
    with pytest.MonkeyPatch.context() as patch:
        for kind in (CompiledLayer, DegreeRows):
            patch.setattr(kind, "forward", _mistaken(kind.forward, mistake))
        yield


def _mistaken(right: Any, mistake: Callable[[Any, torch.Tensor], torch.Tensor]) -> Any:
    return lambda self, *inputs: mistake(self, right(self, *inputs))


@pytest.mark.parametrize("mistake", [wrong_weight, missing_bias])
@pytest.mark.parametrize("part", [nn.ReLU(), Applied(torch.relu)], ids=["known", "a user's own"])
def test_a_twin_that_errs_is_not_used(part: nn.Module, mistake: Any, capsys: pytest.CaptureFixture[str]) -> None:
    graphs = [TREE, *ODD]
    wanted = smoothed(declining(model(part))).certify_all(graphs, samples=300, seed=0)
    assert capsys.readouterr().err == ""
    with erring(mistake):
        smooth = smoothed(model(part))
        assert smooth.certify_all(graphs, samples=300, seed=0) == wanted
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    used = [smooth.classifier.suited(graph, NOISE) for graph in graphs]
    assert {each.path for each in used} == {"message passing"}  # of every graph, whatever its size


def test_a_lookup_that_errs_is_not_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    network = fp.models.GCN(in_features=1, num_classes=3, seed=0).eval()
    right = type(network).on_degrees
    assert smoothed(network).classifier.suited(TREE, NOISE).path == "compiled"
    monkeypatch.setattr(type(network), "on_degrees", lambda *inputs: right(*inputs) + torch.tensor([0.0, 0.01, 0.0]))
    smooth = smoothed(network)
    smooth.check([TREE])
    assert SAYS_SO in capsys.readouterr().err
    used = smooth.classifier.suited(TREE, NOISE)
    assert (used.path, used.remark) == ("dense", "its compiled gives other answers")
    batch = nodes_batch(TREE, NOISE)
    assert np.array_equal(used.scores(batch), DenseClassifier.scores(smooth.classifier, batch))  # type: ignore[arg-type]


def rolled_on(graphs: Callable[[NoisyBatch], bool]) -> Any:
    """Scores of the shortcut that are wrong in certain batches only."""
    right = Shortcut.scores
    return lambda self, batch: np.roll(right(self, batch), 1, axis=1) if graphs(batch) else right(self, batch)


@pytest.mark.parametrize("part", [nn.ReLU(), Applied(torch.relu)], ids=["known", "a user's own"])
@pytest.mark.parametrize("workers", [None, 2])
def test_a_twin_that_errs_on_noisy_copies_only_starts_the_run_over(
    part: nn.Module, workers: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs = [*ODD, TREE]  # the last is asked about when others are done
    wanted = smoothed(declining(model(part))).certify_all(graphs, samples=3000, seed=0)
    smooth = smoothed(model(part))
    monkeypatch.setattr(Shortcut, "scores", rolled_on(lambda batch: batch.num_nodes == 12 and batch.size > 40))
    smooth.check(graphs)
    with pytest.raises(ShortcutDisagrees, match=r"dense_twin = False"):
        smooth.defence.block(smooth, TREE, 0, samples=3000, seed=0)
    assert capsys.readouterr().err == ""
    assert smooth.certify_all(graphs, samples=3000, seed=0, workers=workers) == wanted
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    assert {smooth.classifier.suited(graph, NOISE).path for graph in graphs} == {"message passing"}


@pytest.mark.parametrize("workers", [None, 2])
def test_answers_without_a_certificate_come_from_the_model_itself_too(
    workers: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A twin that errs on sub-graphs only is seen where the sub-graphs are asked about, also by predict."""
    graphs, groups = [*ODD, TREE], 48
    wanted = fp.VotingClassifier(declining(model()), groups, features="degree").predict_all(graphs)
    monkeypatch.setattr(Shortcut, "scores", rolled_on(lambda batch: batch.num_nodes == 12 and batch.size > 40))
    voting = fp.VotingClassifier(model(), groups, features="degree")
    assert voting.predict(TREE) == wanted[-1]
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    assert not voting.classifier.shortcuts
    assert fp.VotingClassifier(model(), groups, features="degree").predict_all(graphs, workers=workers) == wanted
    assert capsys.readouterr().err.count(SAYS_SO) == 1


def test_a_worker_whose_processor_rounds_otherwise_does_not_go_another_way() -> None:
    smooth = smoothed(model())
    smooth.check([TREE])
    other = pickle.loads(pickle.dumps(smooth))
    with erring(wrong_weight), pytest.raises(ShortcutDisagrees):
        other.classifier.suited(TREE, NOISE)


def test_what_decides_on_a_shortcut_knows_no_edge() -> None:
    frozen = [(0, 1), (2, 3)]
    graphs = [fp.Graph(12, []), TREE, fp.Graph(12, [(0, 1), (5, 6)], frozen=frozen)]
    for noise in NOISES:
        states = [nodes_batch(graph, noise).states for graph in graphs]
        assert all(np.array_equal(states[0], other) for other in states[1:])
        assert len(np.unique(states[0], axis=0)) >= 5


# ---- runs in a folder ------------------------------------------------------------------------------------------------------


def test_a_run_records_the_path_and_keeps_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    graphs = [graph.replaced(label=0) for graph in (*ODD, TREE)]
    asked: dict[str, Any] = {"samples": 3000, "seed": 0}
    wanted = smoothed(declining(model())).certify_all(graphs, **asked)
    with monkeypatch.context() as patch:
        patch.setattr(Shortcut, "scores", rolled_on(lambda batch: batch.num_nodes == 12 and batch.size > 40))
        assert fp.certify_run(smoothed(model()), graphs, out=tmp_path / "run", **asked) == wanted
    assert capsys.readouterr().err.count(SAYS_SO) == 1
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["paths"]
    assert all(path.startswith("message passing (its compiled twin gives other answers)") for path in recorded)
    again = smoothed(model())  # whose twin is right
    assert fp.certify_run(again, graphs, out=tmp_path / "run", **asked) == wanted
    assert not again.classifier.shortcuts
    assert problems_of_run(tmp_path / "run") == []


# ---- arithmetic of other machines --------------------------------------------------------------------------------------------

SENSITIVE = ["GCN", "GIN", "GraphNorm between sums", "PairNorm", "InstanceNorm", "standard deviations"]
FEW = [ODD[2], TREE]


class _NoisySums(TorchDispatchMode):
    """Every sum of torch is off by a rounding, another one at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__.rstrip("_")
        if name in ("mm", "addmm", "bmm", "index_add", "scatter_add", "sum", "mean") and result.dtype == torch.float32:
            result.mul_(1 + 2.0**-24 * (2 * torch.rand(result.shape, generator=self.generator) - 1))
        return result


@contextmanager
def noisy_twins(share: float = 1e-6) -> Iterator[None]:
    """The products of all twins are off by a millionth, another one at every call."""
    rng = torch.Generator().manual_seed(0)

    def off(right: Any) -> Any:
        def made(*inputs: Any, **more: Any) -> torch.Tensor:
            rows = right(*inputs, **more)
            if rows.dtype != torch.float32:
                return rows  # type: ignore[no-any-return]
            return rows * (1 + share * (2 * torch.rand(rows.shape, generator=rng) - 1))  # type: ignore[no-any-return]

        return made

    with pytest.MonkeyPatch.context() as patch:
        for name in ("product", "sums"):
            patch.setattr(NeighbourLists, name, off(getattr(NeighbourLists, name)))
        yield


@contextmanager
def other_threads() -> Iterator[None]:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(2)
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)


ARITHMETIC: dict[str, Any] = {"sums": _NoisySums, "twins": noisy_twins, "threads": other_threads}


def shuffled(graph: fp.Graph) -> fp.Graph:
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    return graph.replaced(edges=order[graph.edges])


def check_honest(names: Any, graphs: list[fp.Graph], noises: list[fp.EdgeNoise]) -> None:
    for name in names:
        for noise in noises:
            for memory in (2**30, 2**20):  # batches of other sizes
                defence = fp.SmoothedClassifier(HONEST[name](), noise, features="degree", memory=memory)
                defence.check([shuffled(graph) for graph in graphs] if memory == 2**20 else graphs)


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_honest_networks_pass_in_any_arithmetic(arithmetic: str) -> None:
    with ARITHMETIC[arithmetic]():
        check_honest(SENSITIVE[-2:] if arithmetic == "threads" else SENSITIVE, FEW, NOISES[1:2])


@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_models_that_depend_on_other_graphs_are_refused_in_any_arithmetic(arithmetic: str) -> None:
    with ARITHMETIC[arithmetic]():
        for mutant in MUTANTS.values():
            with pytest.raises(fp.InputError, match=REFUSED):
                smoothed(ByBatch(mutant())).check([TREE])


def test_a_wrong_twin_is_found_in_noise() -> None:
    with noisy_twins(), erring(wrong_weight):
        smooth = smoothed(Zoo(pyg.GCNConv(1, 8), pyg.GCNConv(8, 8)))
        smooth.check([TREE])
        assert smooth.classifier.suited(TREE, NOISE).path == "message passing"


def run_guards(select: str, **variables: str) -> None:
    """The tests of the guards in a process with these variables."""
    tests = Path(__file__).with_name("test_guards.py")
    options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-k", select]
    command = [sys.executable, "-m", "pytest", *options, str(tests)]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, cwd=tests.parents[2])
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.guarantee
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_all_honest_networks_pass_in_any_arithmetic(arithmetic: str) -> None:
    with ARITHMETIC[arithmetic]():
        check_honest(HONEST, [*ODD, TREE, *fp.datasets.topologies(8, seed=0)], NOISES)


@pytest.mark.guarantee
@pytest.mark.parametrize(
    "variable",
    [
        "MKL_ENABLE_INSTRUCTIONS=SSE4_2",
        "MKL_ENABLE_INSTRUCTIONS=AVX2",
        "MKL_ENABLE_INSTRUCTIONS=AVX512",
        "MKL_CBWR=COMPATIBLE",
        "ATEN_CPU_CAPABILITY=default",
        "ATEN_CPU_CAPABILITY=avx2",
        "NUMBA_DISABLE_JIT=1",
        "OMP_NUM_THREADS=2",
    ],
)
def test_the_guards_under_other_instructions(variable: str) -> None:
    name, _, value = variable.partition("=")
    run_guards("honest or refused", **{name: value})
