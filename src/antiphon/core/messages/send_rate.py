"""How many messages one party may send (spec §10)."""

from __future__ import annotations

from typing import Final

from antiphon.core.policy.allowance import Allowance

PER_S: Final = 20.0
BURST: Final = 100.0
SENDING: Final = Allowance(PER_S, BURST)
