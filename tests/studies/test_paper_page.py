"""Reading certificates back, and judging the paper's claims by them."""

import numpy as np
import pytest

from flipproof.studies.paper_experiment import Reading, Settings, Table, read_certificates
from flipproof.studies.paper_page import interval, judge

SETTINGS = Settings(keeps=(0.7, 0.9))
LOWER_RADIUS, LOWER_ACCURACY = (
    "A lower beta gives a larger maximum certified radius",
    "A lower beta gives a lower accuracy",
)
ALPHA, SAMPLES = "alpha matters only at large r", "More samples raise the maximum radius and leave small r alone"
SMALL, ANY = "Most test graphs have a small certified radius", "The method scales and applies to any base classifier"
LOW, HIGH = [-1, -1, -1, 0, 1, 1, 2, 14], [-1, 0, 0, 0, 1, 1, 2, 2]  # of 8 graphs, which are repeated


def table(radii, *, top=2, unsure=0):
    """Radii of two networks; fewer samples or a smaller alpha lower the large ones by ``top``, and lose ``unsure`` graphs."""
    full = np.array([radii * 20] * 2)
    less = np.where(full > 5, full - top, full)
    lost = less.copy()
    lost[:, np.flatnonzero(full[0] == 0)[:unsure]] = -1
    by_alpha = dict(zip(SETTINGS.alphas, (full, full, less), strict=True))
    paper = {Reading("paper", alpha, n): part for alpha, part in by_alpha.items() for n in SETTINGS.sample_counts}
    paper[Reading("paper", SETTINGS.alpha, SETTINGS.sample_counts[0])] = lost
    return Table({reading: full for network in ("gcn", "gin") for reading in SETTINGS.readings(network)} | paper)


def judged(low_keep, high_keep):
    tables = {(network, keep): part for network in ("gcn", "gin") for keep, part in ((0.7, low_keep), (0.9, high_keep))}
    return {claim.claim: claim.holds for claim in judge(SETTINGS, tables)}


def test_claims_hold_on_curves_that_show_them():
    assert all(judged(table(LOW), table(HIGH)).values())


@pytest.mark.parametrize(
    ("low_keep", "high_keep", "claim"),
    [
        (table([-1, -1, -1, 0, 1, 1, 2, 2]), table(HIGH), LOWER_RADIUS),
        (table(HIGH), table(LOW), LOWER_ACCURACY),
        (table(LOW, top=0), table(HIGH), ALPHA),
        (table(LOW, top=0), table(HIGH), SAMPLES),
        (table(LOW, unsure=12), table(HIGH), SAMPLES),
        (table([-1, 14, 14, 14, 0, 0, 0, 0]), table(HIGH), SMALL),
        (table([0] * 8), table([0] * 8), ANY),
    ],
)
def test_claims_can_fail(low_keep, high_keep, claim):
    assert judged(low_keep, high_keep)[claim] is False


def test_one_graph_decides_no_claim():
    single = table(LOW)
    for values in single.radii.values():
        values[:, 0] = 0  # certified under the lower beta alone
    assert judged(single, table(HIGH)) == judged(table(LOW), table(HIGH))


def test_an_interval_draws_graphs_and_not_answers():
    """Networks that agree add nothing: three equal rows are as wide as one."""
    row = np.random.default_rng(1).random(160) < 0.3
    assert interval([row] * 3) == interval([row])
    mean, low, high = interval([row])
    assert mean == pytest.approx(row.mean())
    assert high - low == pytest.approx(2 * 1.96 * np.sqrt(mean * (1 - mean) / 160), rel=0.1)


def test_an_interval_covers_the_truth():
    draws = np.random.default_rng(2).random((300, 1, 160)) < 0.2
    covered = [low <= 0.2 <= high for _, low, high in map(interval, draws)]
    assert np.mean(covered) > 0.9


def test_wrong_and_abstained_count_as_not_certified(tmp_path):
    path = tmp_path / "certificates.csv"
    path.write_text(
        "graph,label,method,alpha,samples,predicted,radius\n"
        "0,1,paper,0.001,10,1,2\n"
        "1,1,paper,0.001,10,0,3\n"
        "2,1,paper,0.001,10,,-1\n"
    )
    read = read_certificates([path, path])
    reading = Reading("paper", 0.001, 10)
    assert read.radii[reading].tolist() == [[2, -1, -1]] * 2
    assert read.curve("x", reading, 3).networks == pytest.approx(np.array([[1, 1, 1, 0]] * 2) / 3)
