"""`antiphon revoke GRANT|NODE`: revokes permissions at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.commands.authority.who import grant_object, short_cid
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import counted, err, out

if TYPE_CHECKING:
    from antiphon.sdk.authority.delegation import Grant, Holdings, Revoked

LISTED: Final = 8


@command
async def revoke(
    home: Path | None,
    targets: list[str] = typer.Argument(
        ...,
        metavar="GRANT|NODE...",
        help="Grants by the end of their id, or nodes by name; 'antiphon who' shows both.",
        show_default=False,
    ),
) -> Answer:
    """Revoke permissions.

    With a grant's id: that grant. With a node: all that you granted to it (as the owner: all that
    anyone granted to it). Everything delegated from it ends too, and so do leases under it.
    """
    async with acting(home) as mesh:
        ended = await mesh.authority.revoke(*targets)
        held = await mesh.authority.who()
    facts = {
        "revoked": [grant_object(one) for one in ended.grants],
        "below": [grant_object(one) for one in ended.below],
        "jobs": [{"kind": job.kind, "job": job.id} for job in ended.jobs],
    }
    return Answer(facts, lambda: _tell(ended, held))


def _tell(ended: Revoked, held: Holdings) -> None:
    from antiphon.sdk.authority.delegation import in_words, stuck_routes

    by_node: dict[str, list[Grant]] = {}
    for one in ended.grants:
        by_node.setdefault(one.audience, []).append(one)
    for node, grants in by_node.items():
        what = in_words(grants)
        ids = " ".join(short_cid(one.cid) for one in grants)
        out.hanging(
            [("✓ ", "succeeded")],
            [
                ("revoked from ", ""),
                (held.called(node), "strong"),
                (f": {what}", ""),
                (f"  {ids}", "quiet"),
            ],
        )
    if ended.below:
        names = list(dict.fromkeys(held.called(one.audience) for one in ended.below))
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        what = counted(len(ended.below), "grant")
        listed = f"{', '.join(names[:LISTED])}{more}"
        out.hanging([(f"  {what} delegated from it also ended: ", "")], [(listed, "")])
    for job in ended.jobs[:LISTED]:
        out.say(f"  the lease on {job.kind} {short(job.id)} ended; others may claim the job")
    if len(ended.jobs) > LISTED:
        out.say(f"  and the leases on {counted(len(ended.jobs) - LISTED, 'more job')}")
    for stuck in stuck_routes(held):
        err.say("  ", stuck.words)
        err.say("  try: ", stuck.hint)
    if held.authority == "open":
        err.say("  this mesh is open: whoever can connect may still do everything")
