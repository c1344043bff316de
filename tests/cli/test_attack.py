"""``flipproof attack``: what it writes, what it continues, what it refuses."""

import json
from pathlib import Path

import flipproof as fp
from support.attacked import trained


def save_models():
    """``clean`` and ``noisy``, in this folder."""
    gcn, _ = trained("gcn", None)
    gin, _ = trained("gin", 0.9)
    metadata = {"data": "topologies:160", "data_seed": 0, "split_seed": 0, "test": 0.4}
    fp.models.save(gcn, "clean", features="degree", metadata=metadata)
    defence = {"name": "smoothing", "keep": 0.9}
    fp.models.save(gin, "noisy", features="degree", defence=defence, metadata=metadata)


ATTACK = ["attack", "--model", "noisy", "--undefended", "clean", "--graphs", 2, "--budget", 1]
ATTACK += ["--samples", 16, "--confirm-samples", 200]


def test_attacks_stand_beside_the_certificates(shell):
    save_models()
    shell.done("certify", "--model", "noisy", "--graphs", 2, "--samples", 300, "--out", "c", "--quiet")
    done = shell.done(*ATTACK, "--certificates", "c", "--json", "--out", "a")
    assert done.err == ""
    summary = json.loads(done.out)
    assert summary["certified_graphs"] == 2
    assert set(summary["accuracy_under_attack"]) == {"undefended", "base", "defended"}
    assert {"run.json", "summary.json", "attacks.csv"} <= {path.name for path in Path("a").iterdir()}
    shown = shell.done(*ATTACK, "--certificates", "c", "--out", "a")
    for words in ("the undefended model", "the smoothed classifier", "certified (lower bound)"):
        assert words in shown.out
    assert "attacking" not in shown.err, "nothing is attacked again"
    # another model's certificates are no measure
    wrong = shell(*ATTACK, "--certificates", "c", "--keep", 0.8, "--out", "b")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "--certificates c has another defence than the attack" in wrong.err
    # a run with other settings is refused, not mixed
    other = shell(*ATTACK, "--certificates", "c", "--seed", 1, "--out", "a")
    assert other.code == 2
    assert "a holds a run with seed = 0; asked for seed = 1" in other.err


def test_a_model_without_a_defence_is_attacked_as_it_is(shell):
    save_models()
    plain = ["attack", "--model", "clean", "--graphs", 1, "--budget", 1, "--json", "--no-removes", "--out", "d"]
    assert set(json.loads(shell.done(*plain).out)["accuracy_under_attack"]) == {"base"}
