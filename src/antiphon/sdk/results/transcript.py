"""What a job prints, each byte once and in order: live as far as it arrives, then the rest.

The live output may be incomplete. What counts is the output that the completion names: it is
compared with what was shown, and what was not shown comes from there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from blake3 import blake3

from antiphon.core.proof.output import Output
from antiphon.errors import Corrupt

if TYPE_CHECKING:
    from antiphon.runtime.worker.job_output import OutputMessage
    from antiphon.sdk.handle import JobHandle
    from antiphon.sdk.mesh import Mesh

STREAMS: Final = ("stdout", "stderr")


class _Shown:
    """The part of one stream that was shown: always its beginning."""

    def __init__(self) -> None:
        self.size = 0
        self.sum = blake3()

    def take(self, at: int, data: bytes) -> bytes:
        """The part of this to show next. Nothing is shown after a gap: the rest comes later."""
        if at > self.size:
            return b""
        fresh = data[self.size - at :]
        self.size += len(fresh)
        self.sum.update(fresh)
        return fresh


class Transcript:
    """Both streams of one job."""

    def __init__(self) -> None:
        self.fence = ""
        self._shown = {name: _Shown() for name in STREAMS}

    @property
    def is_empty(self) -> bool:
        """Whether nothing was shown so far."""
        return not any(shown.size for shown in self._shown.values())

    def begins_anew(self, words: OutputMessage) -> bool:
        """Whether this is from another tenure than what was shown; then all begins again."""
        if words.fence == self.fence:
            return False
        had_words = not self.is_empty
        self.fence = words.fence
        self._shown = {name: _Shown() for name in STREAMS}
        return had_words

    def hear(self, words: OutputMessage) -> bytes:
        """The bytes to show now."""
        return self._shown[words.stream].take(words.at, words.data) if words.stream else b""

    async def rest(
        self, mesh: Mesh, handle: JobHandle[Any], output: Output
    ) -> AsyncIterator[bytes]:
        """What was not shown of an output that is one of the streams.

        `Corrupt` if what was shown is not its beginning.
        """
        shown = self._shown[output.name]
        if shown.size == output.size == 0:
            return
        seen, at = blake3(), 0
        job = (handle.kind, handle.id)
        async with aclosing(mesh.connection.artifacts.stream(output, job=job)) as chunks:
            async for chunk in chunks:
                known = chunk[: max(shown.size - at, 0)]
                seen.update(known)
                at += len(chunk)
                if known and at >= shown.size and seen.digest() != shown.sum.digest():
                    break
                if len(known) < len(chunk):
                    yield chunk[len(known) :]
        if seen.digest() != shown.sum.digest():
            raise Corrupt(
                f"the live {output.name} differs from the one that the job stored",
                hint=f"antiphon get {handle.id[:8]} {output.name} -o -",
            )


__all__ = ["Transcript"]
