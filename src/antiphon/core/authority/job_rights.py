"""Which commands allow a member to read jobs, submit them, and write on their lanes.

The branches of the jobs family use these, and so do the bus, artifacts and queues, which know a
job's kind but not its ops.
"""

from __future__ import annotations

from typing import Final

ANSWERS: Final = "/job/answer"
"""Permission to answer questions, and nothing else: no job of another sort can be claimed by it."""
READ_BY: Final = ("/job/read", "/job/claim", ANSWERS)
"""Permission to claim a kind, or to answer, includes permission to read it."""
CALLED_BY: Final = ("/job/schedule", "/job/complete")
TEMPO_BY: Final = ("/tempo",)
"""Permission to send beats and reports."""
SEND_BY: Final = ("/message/send",)
"""Permission to send messages to agents; their kinds are those of messages."""
WORKED_BY: Final = (
    "/job/claim",
    ANSWERS,
    "/job/complete",
    "/job/cancel",
    "/job/schedule",
    "/artifact/write",
)
"""A submitter may write on the lanes of its jobs, otherwise it could not cancel them."""
