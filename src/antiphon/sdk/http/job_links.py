"""Links to one job, for people who are no members: made here, opened by a node's HTTP interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.bar_tokens.bar_token import Refusal, choose_chain
from antiphon.core.bar_tokens.job_link import MAX_MS, JobLink, check_link, issue_link
from antiphon.core.tempo.time_text import time_text
from antiphon.errors import Malformed, Rejected
from antiphon.read_back import read_back
from antiphon.sdk.durations import seconds

if TYPE_CHECKING:
    from antiphon.core.authority.control import Control
    from antiphon.core.families.jobs.state import Job
    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.mesh import Mesh

LEAST_S: Final = 1.0


class MadeLink(Struct, frozen=True, kw_only=True):
    """A link to a job. Whoever has its token can look at the job until then."""

    job: str
    token: str
    until: str
    """ISO 8601, in UTC."""
    until_ms: int

    @property
    def path(self) -> str:
        """What follows a node's address."""
        return f"/v1/jobs/{self.job}?link={self.token}"


def make_link(
    mesh: Mesh, job: Job, *, lasts: Duration, outputs: bool = False, is_node: bool = False
) -> MadeLink:
    """A link that this process's key signs; `Rejected` if it may not read the job's kind.

    `is_node` says that it is opened by this process itself, which needs no delegations for that.
    """
    lasts_s = seconds(lasts)
    if not LEAST_S <= lasts_s <= MAX_MS / 1000:
        raise Malformed("a link lasts between 1s and 30d", reason="time", hint="--for 2h")
    session, keyring = mesh.connection.session, mesh.connection.keyring
    now_ms = session.wall.now_ms()
    until_ms = now_ms + round(lasts_s * 1000)
    link = JobLink(kind=job.kind, job=job.id, outputs=outputs, until_ms=until_ms)
    if not is_node:
        chain = choose_chain(
            session.control, keyring.did, project=job.kind, role="read", now_ms=now_ms
        )
        if isinstance(chain, Refusal):
            raise Rejected(
                f"this machine has no permission to read {job.kind}",
                reason=chain,
                hint="'antiphon who' lists what it may do",
            )
        link = replace(link, delegation=chain)
    text = issue_link(link, (keyring.did, keyring.sign), mesh=session.mesh)
    own = keyring.did if is_node else ""
    read_back("the link", link, _link_in, text, session.control, now_ms, own)
    return MadeLink(job=job.id, token=text, until=time_text(until_ms), until_ms=until_ms)


def _link_in(text: str, control: Control, now_ms: int, own: str) -> JobLink:
    """What a node reads in a link."""
    found = check_link(text, control=control, now_ms=now_ms, own=own)
    if isinstance(found, Refusal):
        raise Rejected(
            f"its answer would be {found.value!r}",
            reason=found,
            hint="'antiphon who' lists what this machine may do",
        )
    return found.link


__all__ = ["MadeLink", "make_link"]
