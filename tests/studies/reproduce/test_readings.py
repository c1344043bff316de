"""Reading certificates back, and judging the paper's claims by them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flipproof.studies.reproduce.claims import judge
from flipproof.studies.reproduce.experiment import Job, Settings, data_split, train_network
from flipproof.studies.reproduce.paper_page import _gain_table
from flipproof.studies.reproduce.readings import Table, read_certificates

SETTINGS = Settings(keeps=(0.7, 0.9), sample_counts=(1_000, 5_000, 10_000))


def table(radii_at_full: list[int], shorter: int = 2) -> Table:
    """Radii that shrink a little at the top with fewer samples or a smaller alpha."""
    full = np.array(radii_at_full)
    radii = {}
    for alpha, loss in zip(SETTINGS.alphas, (-1, 0, 1), strict=True):
        for count, fewer in zip(SETTINGS.sample_counts, (2 * shorter, shorter, 0), strict=True):
            radii["paper", alpha, count] = np.where(full > 5, full - loss - fewer, full)
    radii["votes", SETTINGS.alpha, SETTINGS.samples] = full
    radii["influence", SETTINGS.alpha, SETTINGS.samples] = full + 1
    return Table(radii)


def judged(low_keep: list[int], high_keep: list[int]) -> dict[str, bool]:
    tables = {
        (network, keep): table(radii)
        for network in ("gcn", "gin")
        for keep, radii in ((0.7, low_keep), (0.9, high_keep))
    }
    return {claim.claim: claim.holds for claim in judge(SETTINGS, tables)}


def test_claims_hold_on_curves_that_show_them() -> None:
    assert all(judged([-1, -1, 0, 1, 1, 2, 14], [-1, 0, 0, 0, 1, 1, 2]).values())


def test_every_share_and_mean_has_its_interval() -> None:
    tables = {(network, keep): table([-1, 0, 1, 2]) for network in ("gcn", "gin") for keep in SETTINGS.keeps}
    head, *rows = _gain_table(SETTINGS, tables)
    assert head[3:] == ["ACR", *(f"CA({r})" for r in (0, 1, 2, 3, 5))]
    assert len(rows) == 2 * len(SETTINGS.keeps) * 3
    for row in rows:
        assert all(re.fullmatch(r"\d+\.\d{2,3} \([\d.]+-[\d.]+\)", cell) for cell in row[3:]), row
    measured = {claim.claim: claim.measured for claim in judge(SETTINGS, tables)}
    assert "0.750 (.19-.99)" in measured["A lower beta gives a lower accuracy"]
    assert re.search(r"GCN \d\.\d\d \(", measured["The method scales and applies to any base classifier"])


@pytest.mark.parametrize(
    ("low_keep", "high_keep", "claim"),
    [
        ([-1, 0, 1, 1, 2], [0, 0, 1, 1, 2], "A lower beta gives a larger maximum certified radius"),
        ([0, 0, 1, 1, 14], [-1, -1, 0, 1, 2], "A lower beta gives a lower accuracy"),
        ([-1, 0, 1, 1, 2], [0, 0, 1, 1, 1], "alpha matters only at large r"),
        ([-1, 0, 1, 1, 2], [0, 0, 1, 1, 1], "More samples raise the maximum radius and leave small r alone"),
        ([-1, 14, 14, 14], [0, 0, 0, 0], "Most test graphs have a small certified radius"),
        ([0, 0, 0], [0, 0, 0], "The method scales and applies to any base classifier"),
    ],
)
def test_claims_can_fail(low_keep: list[int], high_keep: list[int], claim: str) -> None:
    assert judged(low_keep, high_keep)[claim] is False


def test_wrong_and_abstained_count_as_not_certified(tmp_path: Path) -> None:
    path = tmp_path / "certificates.csv"
    path.write_text(
        "graph,name,nodes,edges,label,method,alpha,samples,predicted,radius,order,p_lower\n"
        "0,a,4,3,1,paper,0.001,10,1,2,0,0.9\n"
        "1,b,4,3,1,paper,0.001,10,0,3,0,0.9\n"
        "2,c,4,3,1,paper,0.001,10,,-1,0,0.4\n"
    )
    read = read_certificates(path)
    key = ("paper", 0.001, 10)
    assert read.radii[key].tolist() == [2, -1, -1]
    assert read.curve("x", *key, 3).certified == (1, 1, 1, 0)
    assert read.average_radius(*key) == pytest.approx(2 / 3)


def test_the_experiment_is_the_papers() -> None:
    settings = Settings()
    parts = data_split(settings)
    assert (len(parts.train), len(parts.test)) == (320, 160)
    assert np.bincount(parts.test.labels).tolist() == [20] * 8
    assert settings.keeps == (0.7, 0.8, 0.9, 0.95, 0.99)
    assert settings.alphas == (0.01, 0.001, 0.0001)
    assert settings.sample_counts == (1_000, 5_000, 10_000)
    jobs = settings.jobs()
    assert len(set(jobs)) == len(jobs) == 17
    assert all(job.needs == Job("gcn", None) for job in jobs if job.network == "gcn" and job.keep)


@pytest.mark.parametrize(
    ("keep", "objectives"), [(0.95, ["samples", "attacked"]), (0.99, ["samples", "attacked", "attacked-votes"])]
)
def test_a_network_for_the_radius_is_trained_in_stages(keep: float, objectives: list[str]) -> None:
    tiny = replace(Settings.quick(), gin_epochs=(1, 1), radius_epochs=1, one_flip_epochs=(1, 1))
    _, stages = train_network(Job("gin-radius", keep), tiny, seed=0)
    assert [stage["objective"] for stage in stages] == objectives
    assert [stage.get("flips") for stage in stages[1:]] == ([2] if keep < 0.99 else [1, 1])
