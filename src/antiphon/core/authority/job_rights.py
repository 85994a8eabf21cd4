"""Which commands let a member read jobs, call them, and write on their lanes.

The branches of the jobs' family say it, and so do the bus, artifacts and queues, which know a job
by its kind and not by its ops.
"""

from __future__ import annotations

from typing import Final

READ_BY: Final = ("/job/read", "/job/claim")
"""The right to claim a kind includes the right to read it."""
CALLED_BY: Final = ("/job/schedule", "/job/complete")
WORKED_BY: Final = (
    "/job/claim",
    "/job/complete",
    "/job/cancel",
    "/job/schedule",
    "/artifact/write",
)
"""Whoever may call may write on its jobs' lanes, or it could not take a call back."""
