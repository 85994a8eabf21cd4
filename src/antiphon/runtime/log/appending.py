"""One draft is written until its outcome is known.

A write that nobody answered may be on the log. It is looked for there before it is sent again, and
a second send is safe: the compare-and-set and the message id are those of the first (spec §3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.core.record.ids import message_id
from antiphon.errors import (
    AntiphonError,
    EngineDenied,
    IdTaken,
    LostRace,
    OutcomeUnknown,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from antiphon.ports import OpLog
    from antiphon.runtime.log.author import Draft

APPEND_TRIES: Final = 6


async def append(
    log: OpLog,
    draft: Draft,
    *,
    before_try: Callable[[int], Awaitable[None]],
    timeout_s: float,
    told: AntiphonError | None,
) -> int:
    """The sequence of a draft on the log, or `LostRace` if another record came first.

    `before_try` waits until the next try may begin; it gets its number. `told` is what the first
    one gave, if it was made already.
    """
    taken, is_unknown = 0, False
    last: Unavailable | None = None
    for attempt in range(APPEND_TRIES):
        await before_try(attempt)
        try:
            if told is not None:
                first = told
                told = None
                raise first
            return await log.append(
                draft.subject,
                draft.payload,
                message_id=message_id(draft.payload, taken),
                expected_last=draft.op.prev,
                timeout_s=timeout_s,
            )
        except LostRace:
            found = await _find(log, draft)
            if found is None:
                raise
            return found
        except IdTaken:
            taken += 1  # nothing was stored, and the compare-and-set needs no id
        except Unavailable as problem:
            is_unknown |= isinstance(problem, OutcomeUnknown)
            last = problem
            try:
                found = await _find(log, draft)
            except Unavailable:
                continue
            if found is not None:
                return found
    place = draft.opened.place
    kind, job_id = place.key[1:] if place is not None and place.key.kind else ("", "")
    what = f"{draft.op.type_name()} of job {job_id}" if job_id else draft.op.type_name()
    if not is_unknown:
        if isinstance(last, EngineDenied):
            raise last  # a login is renewed within that time, so it is not permitted
        why = last.message if last is not None else "its message ids were taken"
        raise Unavailable(f"{what} was not written in {APPEND_TRIES} tries: {why}")
    raise OutcomeUnknown(
        f"the engine did not answer {what} in {APPEND_TRIES} tries",
        hint=f"it may still arrive; see 'antiphon show {job_id[:8]}'" if job_id else "read again",
        kind=kind,
        job_id=job_id,
    )


async def _find(log: OpLog, draft: Draft) -> int | None:
    """The sequence at which this exact record is stored, or None.

    Its compare-and-set puts it directly behind its predecessor, or nowhere.
    """
    async for page in log.read_lane([draft.subject], after=draft.op.prev):
        return page[0].seq if page[0].payload == draft.payload else None
    return None
