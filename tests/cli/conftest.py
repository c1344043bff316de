import pytest


@pytest.fixture(autouse=True)
def undrawn_here(undrawn: None) -> None:
    """No command here draws figures."""
