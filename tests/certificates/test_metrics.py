"""Certified accuracy and average radius: read off the right radii, radius included, abstaining never right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flipproof import Graph, InputError, average_certified_radius, certified_accuracy
from flipproof.certificates.metrics import Curve, mean_radius, right_radii, shares, withstands
from support.certificates import ABSTAINED, certificate


def test_certified_accuracy_counts_radii_of_at_least_r() -> None:
    certificates = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED]
    labels = [0, 1, 0, 0]  # right with 2, right with 0, wrong with 3, abstained
    accuracy = certified_accuracy(certificates, labels, radii=range(5))
    assert accuracy.tolist() == [0.5, 0.25, 0.25, 0.0, 0.0]
    assert accuracy.dtype == np.float64
    assert certified_accuracy(certificates, labels).shape == (17,)
    assert certified_accuracy(certificates, labels, [2, 0]).tolist() == [0.25, 0.5]
    assert certified_accuracy(certificates, np.array(labels), []).shape == (0,)


def test_abstaining_is_never_right_whatever_the_label_is_called() -> None:
    assert certified_accuracy([ABSTAINED], [-1], [-1, 0]).tolist() == [0.0, 0.0]
    assert average_certified_radius([ABSTAINED], [0]) == 0


def test_average_certified_radius_counts_wrong_and_abstained_as_0() -> None:
    certificates = [certificate(0, 2), certificate(1, 0), certificate(1, 3), ABSTAINED, certificate(1, 4)]
    assert average_certified_radius(certificates, [0, 1, 0, 0, 1]) == 6 / 5
    assert type(average_certified_radius(certificates, [0, 1, 0, 0, 1])) is float


@pytest.mark.parametrize("labels", [[0], [0, 1, 1], 0, [[0, 1]]])
def test_labels_must_match(labels: Any) -> None:
    for measure in (certified_accuracy, average_certified_radius):
        with pytest.raises(InputError, match=r"one per certificate, \[2\].*got shape"):
            measure([certificate(), certificate()], labels)


def test_no_certificates_have_no_accuracy() -> None:
    with pytest.raises(InputError, match="at least one"):
        certified_accuracy([], [])


def test_right_radii_are_minus_one_where_the_answer_is_wrong_missing_or_cannot_be_judged() -> None:
    found = right_radii([3, 4, -1, 5, 6], [0, 1, None, 2, None], [0, 0, 0, None, None])
    assert found.tolist() == [3, -1, -1, -1, -1]
    assert shares(found, [-1, 0, 3, 4]).tolist() == [0.2, 0.2, 0.2, 0.0]
    assert mean_radius(found) == 0.6


def test_a_curve_holds_counts_accuracy_and_a_band_around_it() -> None:
    curve = Curve.of("smoothed", np.array([2, -1, 0, 2]), 3)
    assert (curve.certified, curve.graphs) == ((3, 2, 2, 0), 4)
    assert curve.accuracy.tolist() == [0.75, 0.5, 0.5, 0.0]
    below, above = curve.band
    assert (below <= curve.accuracy).all()
    assert (curve.accuracy <= above).all()
    assert (below[3], above[3] < 1) == (0.0, True)


@pytest.mark.parametrize(
    ("adds", "removes", "stands"),
    [(0, 0, True), (1, 0, True), (0, 2, True), (1, 1, False), (2, 0, False), (0, 3, True), (0, 99, True)],
)
def test_what_a_certificate_withstands_is_every_smaller_attack_that_the_graph_has_room_for(
    adds: int, removes: int, stands: bool
) -> None:
    graph = Graph(4, [(0, 1), (1, 2)])
    found = certificate(0, 1, grid=np.array([[True, True, True], [True, False, False]]))
    assert withstands(found, graph, adds=adds, removes=removes) is stands
    assert not withstands(ABSTAINED, graph, adds=0, removes=0)
