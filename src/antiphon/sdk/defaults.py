"""What a door shows in its help before anything is loaded: choices and defaults.

Imports nothing, so that `antiphon --help` comes up at once. Defaults of the SDK are defined here.
The words of the core and the settings stand here a second time; a test holds them together
(tests/sdk/test_defaults.py).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# --- choices ----------------------------------------------------------------------------------


class StateName(StrEnum):
    """Where a job can stand, in the order of its life."""

    WAITING = "waiting"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


class RightName(StrEnum):
    """What a grant can allow."""

    CLAIM = "claim"
    SCHEDULE = "schedule"
    READ = "read"
    CANCEL = "cancel"
    ALL = "all"


MANIFEST_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""How the name of a manifest's file ends."""

# --- defaults ---------------------------------------------------------------------------------

TIMEOUT_S: Final = 3600
"""How long one attempt of a job may run."""
RETRY_BASE_S: Final = 1.0
"""The pause before the second attempt; doubled before each further one."""
RETRY_CAP_S: Final = 60.0
"""The longest such pause."""
COMMAND_KIND: Final = "command"
"""The kind of commands that nobody gave another."""
SLOTS: Final = 8
"""Jobs that a worker runs at the same time."""
ROLL_CALL_S: Final = 0.4
"""How long to listen for the answers to a roll call."""
DEAD_LETTERS_MAX: Final = 1_000
"""Jobs that ended without a result and are looked at to find what to retry."""
