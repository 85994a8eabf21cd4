"""A plugin of pytest: tests that take little come first, since one failure is enough."""

import pytest

DEAR = ("slow", "processes", "nats")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Undo the order of tests/conftest.py, which has the longest first."""
    items.sort(key=lambda item: [item.get_closest_marker(mark) is not None for mark in DEAR])
