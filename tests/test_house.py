"""The house is kept in order: one meaning per module name, and no defence is spoken of outside its rooms."""

import inspect
import itertools
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numba
import pytest
import torch

import flipproof as fp
from flipproof.compiling import compiled
from flipproof.defences import defence_classes, defence_names
from flipproof.defences.defence import Defence
from flipproof.studies.search_space import spaces

PACKAGE = Path(fp.__file__).parent
ROOT = Path(__file__).parents[1]
SOURCES = sorted(PACKAGE.rglob("*.py"))
LARGEST_PASSED = {"local": 15, "smoothing": 20, "certify": 45}  # modules of flipproof


def test_no_two_modules_have_the_same_name():
    places = defaultdict(list)
    for path in SOURCES:
        if path.name != "__init__.py":
            places[path.name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


OTHER_MEANINGS = {
    "cli/defending.py": {"none"},  # nothing to compare with
    "cli/options.py": {"local"},  # this machine
    "report/plots.py": {"smoothing"},  # an example
    "studies/estimator.py": {"smoothing", "voting", "local"},  # in its docstring: what a user may type
    "report/templates.py": {"smoothing", "none"},  # an example; a page loads nothing from elsewhere
    "runs/saved_run.py": {"SmoothedClassifier"},  # an example
}
COMPARED = {"edge-blind", "none"}  # the line to beat, and nothing, in tables of report and studies
ALLOWED = ("report/wording.py", "studies/search_space.py", "studies/paper_")  # tables by name; the paper smooths


def test_defences_are_named_in_their_rooms_alone():
    """Above the defences everything knows the protocol and no single defence, but for the tables by name."""
    names = "|".join(defence_names())
    homes = "|".join(kind.__module__.rpartition(".")[2] for kind in defence_classes())
    classes = "|".join(kind.__name__ for kind in defence_classes())
    named = re.compile(
        rf"""["']({names})["']|defences\.({homes})\b|\b({classes})\(|\b((?:Smoothed|Voting|Local|EdgeBlind)Classifier)\("""
    )
    tables = set()
    for path in SOURCES:
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(("cli/", "studies/", "report/", "runs/", "attacks/")):
            continue
        words = {next(filter(None, match.groups())) for match in named.finditer(path.read_text())}
        if place.startswith(ALLOWED):
            tables |= {place} if words else set()
            continue
        compared = COMPARED if place.startswith(("report/", "studies/")) else set()
        assert words <= OTHER_MEANINGS.get(place, set()) | compared, place
    assert set(ALLOWED[:2]) <= tables, "the search finds something"


def test_a_defence_has_at_most_twelve_members():
    members = {name for name in vars(Defence) if not name.startswith("__")} | set(Defence.__annotations__)
    members -= {"_abc_impl"}
    assert len(members) <= 12, sorted(members)


def test_every_defence_declares_whole_sentences_for_its_options():
    for defence in spaces():
        for option in (*defence.settings, *defence.training_options, *defence.asking):
            assert re.fullmatch(r"[A-Z].* .*\.", option.help), (defence.name, option.name)
    assert [defence.name for defence in defence_classes()] == list(defence_names())


def modules_of(call):
    """The modules of flipproof whose functions a call runs."""
    seen: set[str] = set()

    def watch(frame, event, argument):
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if event == "call" and path.startswith(str(PACKAGE)) and name != "<module>":
            seen.add(path)

    call()  # what is loaded and compiled once is no part of it
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def test_a_certificate_passes_few_modules(shell):
    graph = fp.Graph(6, [(0, 1), (1, 2), (2, 3)], label=0)
    local = fp.LocalClassifier(fp.models.Local(in_features=0, num_classes=2, seed=0).eval())
    model = fp.models.GIN(in_features=1, num_classes=2, hidden=8, seed=0).eval()
    smooth = fp.SmoothedClassifier(model, fp.EdgeNoise(keep=0.9), features="degree")
    smooth.save("model")
    options = ["--model", "model", "--data", "graphs", "--part", "all", "--samples", "200", "--workers", "1", "-q"]
    runs = itertools.count()
    passed = {
        "local": modules_of(lambda: local.certify(graph)),
        "smoothing": modules_of(lambda: smooth.certify(graph, samples=200, seed=0)),
        "certify": modules_of(lambda: shell("certify", *options, "--out", f"run{next(runs)}")),
    }
    names = {name: sorted(Path(path).name for path in modules) for name, modules in passed.items()}
    assert {name: found for name, found in names.items() if len(found) > LARGEST_PASSED[name]} == {}


def test_the_tests_mirror_the_package():
    """A folder of tests is a package of flipproof, or one of those that look at the whole."""
    whole = {"guarantee", "journeys", "support", "__pycache__"}
    packages = {path.parent.name for path in PACKAGE.rglob("__init__.py")}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir()}
    assert folders - whole <= packages


def loaded_after(code):
    """Modules that a fresh interpreter has loaded after running some code."""
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


NO_TORCH = {"torch", "torch_geometric", "matplotlib", "networkx", "scipy.stats"}
HEAVY = NO_TORCH | {"scipy", "numpy", "pandas", "ray", "rich", "typer", "numba"}


@pytest.mark.parametrize(
    ("code", "needed", "others"),
    [
        ("", "flipproof", HEAVY),
        ("flipproof.radius(0.99, flipproof.EdgeNoise(keep=0.9))", "numpy", NO_TORCH),
        ("flipproof.certify_counts([990, 10], flipproof.EdgeNoise(keep=0.9), method='votes')", "numpy", NO_TORCH),
        ("flipproof.Graph(3, [(0, 1)]).flipped([(1, 2)])", "numpy", NO_TORCH),
        ("flipproof.Votes", "numpy", NO_TORCH),
    ],
)
def test_only_what_is_needed_is_loaded(code, needed, others):
    loaded = loaded_after(f"import flipproof\n{code}")
    assert needed in loaded
    assert not loaded & others


@pytest.mark.parametrize("options", [["--keep", "0.8", "--samples", "1100"], ["--groups", "3"], ["--defence", "none"]])
def test_a_black_box_is_certified_without_torch(shell, options):
    certify = ["certify", "--model", "own:make", "--data", "graphs", *options, "--workers", "2", "--out", "run", "-q"]
    loaded = loaded_after(
        f"import sys\nfrom flipproof.cli import main\nfor words in ({certify!r}, ['verify', 'run', '-q']):\n"
        "    sys.argv = ['flipproof', *words]\n"
        "    try:\n        main()\n    except SystemExit as ended:\n        assert not ended.code, ended.code"
    )
    assert Path("run", "certificates.parquet").exists()
    assert {"numpy", "own"} <= loaded
    assert not loaded & {"torch", "torch_geometric", "matplotlib", "ray"}


def test_public_names():
    assert {"EdgeNoise", "Graph", "SmoothedClassifier", "certify_votes", "datasets", "train"} <= set(fp.__all__)
    assert all(getattr(fp, name) is not None for name in fp.__all__)
    assert set(fp.__all__) <= set(dir(fp))
    assert issubclass(fp.InputError, ValueError)
    with pytest.raises(AttributeError, match="no attribute 'certfy'"):
        fp.certfy  # noqa: B018


def test_no_folder_for_the_cache(monkeypatch):
    """numba refuses to be told to keep what it compiled; the loops are then compiled in every process."""
    plain = numba.njit

    def refusing(*given: Any, cache=False, **more: Any):
        def decorate(function):
            if cache:
                raise RuntimeError("cannot cache function: no locator available")
            return plain(**more)(function)

        return decorate

    monkeypatch.setattr(numba, "njit", refusing)
    found = compiled(lambda number: number + 1)
    assert found(2) == 3


def public_callables():
    """Every function, constructor and method that a user may call, with its class; of a network the constructor alone, as
    torch and flipproof call the rest."""
    values: dict[str, Any] = {name: getattr(fp, name) for name in fp.__all__}
    for name, module in [(name, value) for name, value in values.items() if inspect.ismodule(value)]:
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        values |= {f"{name}.{key}": getattr(module, key) for key in getattr(module, "__all__", own) if key[0] != "_"}
    callables: dict[str, tuple[Any, Any]] = {}
    for name, value in values.items():
        if isinstance(value, fp.attacks.Attack):
            callables[name] = type(value).__call__, type(value)
        elif inspect.isfunction(value):
            callables[name] = value, None
        elif inspect.isclass(value):
            methods = {key: inspect.getattr_static(value, key) for key in dir(value) if key[0] != "_"}
            if issubclass(value, torch.nn.Module):
                methods = {}
            if not (is_dataclass(value) and value.__dataclass_params__.init):  # made by flipproof, read by users
                methods["__init__"] = value.__init__
            for key, method in methods.items():
                function = getattr(method, "__func__", method)
                if inspect.isfunction(function) and function.__module__.startswith("flipproof"):
                    callables[f"{name}.{key}"] = function, value
    return callables


CALLABLES = public_callables()
DETAILS = ("defences.", "features.")  # for whoever writes a defence or node features; the others are for everybody


def documentation(name):
    """The docstring and those of its class and of what it refers to: the places where a user looks for an argument."""
    value, owner = CALLABLES[name]
    kinds = [] if owner is None else [kind for kind in owner.__mro__ if kind.__module__.startswith("flipproof")]
    own = inspect.getdoc(value) or ""
    referred = {path.rpartition(".")[2] for path in re.findall(r":(?:class|func|meth):`~?([\w.]+)`", own)}
    others = [key for key in CALLABLES if referred & {key.rpartition(".")[2], key.removesuffix(".__init__")}]
    documented = [CALLABLES[key][slot] for key in others for slot in (0, 1)]
    overridden = [kind.__dict__.get(value.__name__) for kind in kinds]
    places = [*kinds, *overridden, *documented]
    return "\n".join([own, *(inspect.getdoc(one) or "" for one in places if one is not None)])


def faults_of(name):
    text, faults = documentation(name), []
    for parameter in inspect.signature(CALLABLES[name][0]).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            faults.append(f"takes **{parameter.name}")
        if parameter.annotation is inspect.Parameter.empty:
            faults.append(f"{parameter.name} has no type")
        if not name.startswith(DETAILS) and not re.search(rf"\b{parameter.name.removesuffix('s')}s?\b", text):
            faults.append(f"{parameter.name} is not documented")
    return faults if text or name.startswith(DETAILS) else ["has no docstring"]


def test_every_argument_is_explicit_typed_and_documented():
    """What an editor can complete, and a reader look up."""
    known = {
        "SmoothedClassifier.certify",
        "Graph.from_pyg",
        "train",
        "models.GIN.__init__",
        "attacks.greedy",
        "plot.graph",
    }
    assert known <= set(CALLABLES), "the walk finds what users call"
    assert {name: faults for name in CALLABLES if (faults := faults_of(name))} == {}


def test_a_run_takes_what_every_defence_asks():
    asked = {entry.name for kind in defence_classes() for entry in fields(kind.request)} - {"graphs"}
    assert asked <= set(inspect.signature(fp.certify_run).parameters)
