"""A plugin of pytest: writes how long each test took that passed."""

import json
import os
from pathlib import Path

import pytest


class Times:
    """Collects reports in the process that has all of them."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what setting up, calling and tearing down took."""
        before = self._seconds.get(report.nodeid, 0.0)
        self._seconds[report.nodeid] = before + report.duration
        if not report.passed:
            self._others.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write it all."""
        passed = {test: s for test, s in self._seconds.items() if test not in self._others}
        written = Path(os.environ["ANTIPHON_MUTANT_TIMES"])
        written.write_text(json.dumps(passed), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Where tests run side by side, their controller has every report."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times())
