"""Changes of nodes: certificates of local networks against all attacks on nodes and edges of small graphs."""

import pytest

from support.local_tables import CASES, compared

pytestmark = pytest.mark.guarantee


@pytest.mark.parametrize("name", CASES)
def test_brute_force(name):
    """12 random networks each: no radius above the truth, and most of the true radius certified."""
    radii = list(compared(networks=12, nodes=4, **CASES[name]))
    for radius, truth in radii:
        assert radius <= truth
        assert (radius < 0) == (truth < 0)
    assert sum(radius == truth for radius, truth in radii) >= 0.75 * len(radii)
