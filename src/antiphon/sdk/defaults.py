"""Choices and defaults that an interface shows in its help before anything is loaded.

Imports nothing, so that `antiphon --help` is fast. Defaults of the SDK are defined here. Values of
the core and the settings are repeated here; a test compares them (tests/sdk/test_defaults.py).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

# --- choices ----------------------------------------------------------------------------------


class StateName(StrEnum):
    """The states of a job, in the order in which it can reach them."""

    WAITING = "waiting"
    PENDING = "pending"
    CLAIMED = "claimed"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABORTED = "aborted"


MANIFEST_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""The suffixes of a manifest's file."""

# --- defaults ---------------------------------------------------------------------------------

TIMEOUT_S: Final = 3600
"""How long one attempt of a job may run."""
RETRY_BASE_S: Final = 1.0
"""The pause before the second attempt; doubled before each further one."""
RETRY_CAP_S: Final = 60.0
"""The longest such pause."""
COMMAND_KIND: Final = "command"
"""The default kind of commands."""
SLOTS: Final = 8
"""Jobs that a worker runs at the same time."""
ROLL_CALL_S: Final = 0.4
"""How long to listen for the answers to a roll call."""
STALE_MS: Final = 60_000
"""How long after its last heartbeat a node is not live any more."""
CHANGES_SHOWN: Final = 50
"""How many changes of presence are shown."""
MOST_LISTED: Final = 10_000
"""Jobs that are listed at once."""
MANY_MOST: Final = 1_000
"""Jobs that are cancelled or retried at once."""
DEAD_LETTERS_MAX: Final = 10_000
"""How many jobs that ended without a result are checked to find what to retry."""
