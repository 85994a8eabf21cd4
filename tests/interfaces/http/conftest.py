"""What the tests of the HTTP interface share."""

import pytest

from tests.interfaces.http import test_node_server


@pytest.fixture(autouse=True)
def _bars_of_this_test():
    """Each test begins in the middle of a long bar."""
    test_node_server.long_bars.cache_clear()
