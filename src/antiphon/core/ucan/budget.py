"""A budget of steps that bounds the cost of evaluating policies.

Quantifiers nest, so a short policy over a long list can cost anything. Every evaluation spends
from one budget, shared by all links of a chain; when it is used up, the policies count as not
satisfied. Steps are counted, not time, so that every node stops at the same place.
"""

from __future__ import annotations

from typing import Final

from antiphon.errors import Rejected

MAX_STEPS: Final = 1000  # about 0.65 µs each: well below a millisecond together


class Exhausted(Rejected):
    """A policy needs more steps than its budget; it counts as not satisfied."""

    def __init__(self) -> None:
        super().__init__("the policy takes too many steps to evaluate", reason="delegation")


class Budget:
    """How many steps are left."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_STEPS

    def spend(self, steps: int) -> None:
        """Use up steps, or raise `Exhausted`."""
        self.left -= steps
        if self.left < 0:
            raise Exhausted
