"""Attacks on smoothed classifiers: the common noise has the right law, and a claimed success is real."""

import itertools

import numpy as np
import pytest

import flipproof as fp
from flipproof.defences.target import Effort, SmoothedTarget, target_of
from support.attacked import TableClassifier
from support.cube import Cube, classifier

NOISES = [fp.EdgeNoise(keep=0.8), fp.EdgeNoise(add=0.05, remove=0.4)]


def cube_of(kind, noise, seed, slots=6, num_classes=3):
    rng = np.random.default_rng(seed)
    clean = rng.random(slots) < 0.5
    return Cube(noise, clean, classifier(kind, slots, num_classes, clean, rng), num_classes)


def smoothed_target(cube, samples, seed=0):
    smooth = fp.SmoothedClassifier(TableClassifier(cube.labels, cube.num_classes), cube.noise)
    target = target_of(smooth, cube.graph, Effort(samples=samples, seed=seed), label=0)
    assert isinstance(target, SmoothedTarget)
    return target


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_margins_under_common_noise_have_the_exact_mean(noise):
    cube = cube_of("random", noise, 3)
    target = smoothed_target(cube, 20_000)
    flips = np.array(list(itertools.combinations(range(6), 2)))
    states = cube.clean[None].repeat(len(flips), axis=0)
    states[np.arange(len(flips))[:, None], flips] ^= True
    shares = cube.shares_after(states)
    expected = shares[:, 0] - shares[:, 1:].max(axis=1)
    assert np.abs(target.evaluate(flips).margins - expected).max() < 5 * 2 / np.sqrt(20_000)


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_common_noise_differs_only_in_attacked_slots(noise):
    cube = cube_of("random", noise, 4)
    target = smoothed_target(cube, 500)
    clean = np.where(cube.clean, target.if_edge, target.if_empty)
    for slot in range(6):
        attacked = cube.clean.copy()
        attacked[slot] ^= True
        changed = clean != np.where(attacked, target.if_edge, target.if_empty)
        assert not np.delete(changed, slot, axis=1).any()
        assert changed[:, slot].any()
    if noise.symmetric:  # noise of the candidate = noise flips XOR attacked slots
        assert (target.if_edge == ~target.if_empty).all()


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_confirmed_successes_are_real(noise):
    confirmed = 0
    for seed in range(12):
        cube = cube_of("random", noise, seed)
        smooth = fp.SmoothedClassifier(TableClassifier(cube.labels, cube.num_classes), noise)
        label = int(cube.shares.argmax())
        result = fp.attacks.greedy(smooth, cube.graph, budget=4, label=label, samples=200, confirm_samples=4000)
        states = np.isin(cube.graph.slots, result.graph.edge_slots)
        if result.success:
            confirmed += 1
            assert cube.shares_after(states).argmax() != label
            assert result.alpha == 0.001
            assert result.margin_after < 0
    assert confirmed >= 2


def test_a_false_success_is_confirmed_no_more_often_than_alpha():
    """Two classes exactly alike: no rival is more likely than the label, the worst case for the test."""
    slots = 3
    parity = np.array([bin(state).count("1") % 2 for state in range(2**slots)])
    cube = Cube(fp.EdgeNoise(keep=0.5000001), np.zeros(slots, dtype=np.bool_), parity, 2)
    false = 0
    for seed in range(300):
        smooth = fp.SmoothedClassifier(TableClassifier(cube.labels, cube.num_classes), cube.noise)
        target = target_of(smooth, cube.graph, Effort(10, 200, 0.05, seed), label=0)
        false += target.confirm(cube.graph)[0]
    assert false <= 28  # mean at most 15, four standard deviations
    assert false >= 1  # and the test can fail


def test_an_unconfirmed_attack_is_no_success():
    cube = cube_of("random", fp.EdgeNoise(keep=0.8), 0)
    smooth = fp.SmoothedClassifier(TableClassifier(cube.labels, cube.num_classes), cube.noise)
    label = int(cube.shares.argmax())
    result = fp.attacks.greedy(smooth, cube.graph, budget=6, label=label, samples=50, confirm_samples=1)
    assert result.confirmed is not True
    assert not result.success


def test_options_of_the_base_classifier_are_refused():
    cube = cube_of("random", NOISES[0], 0)
    smooth = fp.SmoothedClassifier(TableClassifier(cube.labels, cube.num_classes), NOISES[0])
    with pytest.raises(fp.InputError, match="has its own features"):
        fp.attacks.greedy(smooth, fp.Graph(4, []), budget=1, features="degree")
