"""The cost of judging policies, counted in steps and bounded.

Quantifiers nest, so a short policy over a long list can cost anything. Every evaluation spends
from one budget, shared by all links of a chain; when it is gone the policies are not satisfied,
whatever they would have said. Steps are counted, not time: every peer stops at the same place.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import Rejected

MAX_STEPS: Final = 1000  # about 0.65 µs each: well below a millisecond together


class Exhausted(Rejected):
    """A policy asked for more steps than it is given; it counts as not satisfied."""

    def __init__(self) -> None:
        super().__init__("the policy costs too much to judge", reason="delegation")


class Budget:
    """How many steps are left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Take steps away, or raise `Exhausted`."""
        self.left -= steps
        if self.left < 0:
            raise Exhausted
