"""A family of the tests' own: polls that are opened, voted in and closed.

It follows the recipe "A new family of ops" in docs/ARCHITECTURE.md, and nothing in `src` knows it.
The two lines that the recipe adds to `src` are in `tests.families.registered`.
"""

from antiphon.core.family import Column, Family, Index
from antiphon.core.protocol import PROTOCOL
from tests.families.polls import ops, table

POLLS = Family(
    name="polls",
    ops=(ops.PollOpen, ops.PollVote, ops.PollClose),
    branches=(ops.POLL, ops.VOTE, ops.CLOSE),
    rights={"vote": ("/poll/vote",), "ask": ("/poll/open", "/poll/vote")},
    lane=table.PollLane,
    step=table.step,
    enter=table.enter,
    entry=table.entry,
    columns=(
        Column("state", "text", lambda poll: "open" if poll.is_open else "closed"),
        Column("ayes", "integer", lambda poll: poll.ayes),
        Column("whose", "text", lambda poll: poll.whose, is_told=False),
    ),
    indexes=(Index(("whose", "ayes"), of="ayes"),),
)

WITH_POLLS = PROTOCOL.adding(POLLS)
