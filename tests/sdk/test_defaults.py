"""What doors show before anything is loaded is what the core and the settings say."""

import subprocess
import sys

import pytest

from antiphon.core.families.jobs.ops import Retry
from antiphon.core.families.jobs.state import State
from antiphon.core.presence.presence_table import STALE_MS
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk import defaults
from antiphon.sdk.defaults import StateName
from antiphon.settings import Settings


def test_the_choices_are_those_of_the_core():
    assert [name.value for name in StateName] == [state.value for state in State]


def test_the_defaults_are_those_that_hold_where_nobody_says_anything():
    assert WorkerSettings().slots == Settings().slots == defaults.SLOTS
    assert Retry().base_ms == defaults.RETRY_BASE_S * 1000
    assert Retry().cap_ms == defaults.RETRY_CAP_S * 1000
    assert defaults.STALE_MS == STALE_MS


@pytest.mark.processes
def test_they_are_there_without_the_core():
    loaded = "import sys, antiphon.sdk.defaults\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    ours = {name for name in done.stdout.split() if name.startswith("antiphon")}
    assert ours == {"antiphon", "antiphon.lazy_names", "antiphon.sdk", "antiphon.sdk.defaults"}
