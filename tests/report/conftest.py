import pytest

from support.certified_runs import make_runs


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    """A user's folder with small real runs; not to be changed."""
    return make_runs(tmp_path_factory.mktemp("user"))
