import pytest


@pytest.fixture(autouse=True)
def undrawn_here(undrawn):
    """No command here draws figures."""
