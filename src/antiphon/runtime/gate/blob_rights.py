"""Who may have a blob: whoever may read a job whose accepted records name it.

A member must not get a blob by its own word, or it could have any by calling or completing a job
of its own with that digest in it. So it matters who wrote the record. A record under a right that
the member passed on counts as its own: it may have passed it on to a key of its own making. By such
records it gets what was stored by itself, or by a machine that the right was passed on to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from antiphon.core.authority.chain_check import by_the_word_of
from antiphon.core.authority.job_rights import CALLED_BY, READ_BY, WORKED_BY
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import JobComplete, JobSchedule
from antiphon.core.manifest import BlobInput
from antiphon.core.record.op import Op
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.authority.scope import Scope
    from antiphon.runtime.log.session import Session

Vouching = Literal["others"] | frozenset[str]
"""`others`: somebody else's records name the blob. Otherwise the users whose own it must be."""


class BlobRights:
    """Looks at lanes for whoever keeps the gate."""

    def __init__(
        self,
        session: Session,
        scope_of: Callable[[str], Scope],
        node_of: Callable[[str], str],
        users_of: Callable[[Iterable[str]], Iterable[str]],
    ) -> None:
        """`scope_of` gives what an engine user holds now.

        `node_of` gives the machine behind it, empty if there is none.

        `users_of` gives the engine users of those among some nodes that are machines.
        """
        self._session = session
        self._scope_of = scope_of
        self._node_of = node_of
        self._users_of = users_of

    def may_read(self, user: str, kind: str) -> bool:
        """Whether it may read jobs of this kind."""
        return self._scope_of(user).admits(kind, *READ_BY)

    def may_store(self, user: str) -> bool:
        """Whether it may call or work on anything."""
        return bool(self._scope_of(user).of(*CALLED_BY, *WORKED_BY))

    async def vouches(self, user: str, kind: str, job_id: str, digest: str) -> Vouching:
        """Whose accepted records on a lane name the blob, as seen from this user."""
        node = self._node_of(user)
        if not node or not kind or not job_id:
            return frozenset()
        view = await self._session.read_lane(kind, job_id)
        through: set[str] = set()
        for judged in view.history:
            op, seq = judged.opened.op, judged.opened.seq
            if judged.verdict is not Verdict.OK or not names(op, digest):
                continue
            control = self._session.history.at(seq, judged.opened.commit_ms)
            own: tuple[str, ...] = ()
            if control is not None and isinstance(op, JOBS.ops):
                own = by_the_word_of(control, op, seq, node)
            if not own:
                return "others"
            through.update(own)
        return frozenset((user, *self._users_of(through))) if through else frozenset()


def names(op: Op | None, digest: str) -> bool:
    """Whether an op says that its job reads, or wrote, this content."""
    if isinstance(op, JobSchedule):
        given = op.body.manifest.inputs
        inputs = () if given is UNSET else given
        return any(isinstance(one, BlobInput) and one.hash == digest for one in inputs)
    if isinstance(op, JobComplete):
        return any(output.hash == digest for output in op.body.outputs)
    return False
