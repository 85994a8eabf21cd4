"""How many messages one party may send, and have waiting in all inboxes together (spec §10)."""

from __future__ import annotations

from typing import Final

from antiphon.core.messages.register import RETENTION_MS
from antiphon.core.policy.rate_limit import Allowance

PER_S: Final = 20.0
BURST: Final = 100.0
SENDING: Final = Allowance(PER_S, BURST)

STORED_BYTES: Final = 1024**3
REGISTER_BYTES: Final = 512
"""What a message costs the store besides its own bytes."""
STORED: Final = Allowance(STORED_BYTES * 1000 / RETENTION_MS, STORED_BYTES)
"""What is acknowledged is given back; the rest comes back in the time that a message is kept."""
