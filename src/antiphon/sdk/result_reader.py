"""The value of a job's result: found in its completion or among the artifacts, and decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from antiphon.runtime.executors.handler_call import result_of
from antiphon.runtime.values.value_codec import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.caller.submission import Ended
    from antiphon.runtime.values.signature import CallSignature


class ResultReader(Struct, frozen=True):
    """Reads results of one task, or of any."""

    signature: CallSignature | None = None
    """The function's; None: plain JSON."""
    artifacts: Callable[[], Artifacts | None] = lambda: None
    """Asked only for a result that is stored as an artifact."""

    async def read(self, ended: Ended) -> Any:
        """The value; None for a command, which has no result."""
        job = (ended.job.kind, ended.job.id)
        text = await result_of(ended.outputs, self.artifacts, job=job)
        if text is None:
            return None
        return PLAIN.decode(text) if self.signature is None else self.signature.decode_result(text)


PLAIN_RESULT: Final = ResultReader()
