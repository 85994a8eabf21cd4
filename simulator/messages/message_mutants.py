"""Deliberate bugs of the message gate: each must be noticed by laws of the simulated inboxes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

from antiphon.core.messages.inbox import InboxItem
from antiphon.engines.memory.messages import MessageRegisters
from antiphon.errors import Unavailable
from antiphon.runtime.messages.message_gate import MessageGate
from simulator.patch import patched


class Mutant(Protocol):
    """A bug that is there while a block runs."""

    __name__: str

    def __call__(self) -> AbstractContextManager[None]:
        """Put it in."""


@contextmanager
def acknowledgements_are_kept_in_memory() -> Iterator[None]:
    """A gate remembers what was acknowledged, and does not write it down."""
    really_write = MessageGate._write  # noqa: SLF001 - a bug is put in

    async def write(self: Any, key: str, body: bytes, note: Any, *, expected: int) -> int:
        if note.done:
            return expected + 1
        return await really_write(self, key, body, note, expected=expected)

    with patched(MessageGate, "_write", write):
        yield


@contextmanager
def threads_have_no_order() -> Iterator[None]:
    """Every message is handed out as if it were alone."""
    with patched(InboxItem, "thread", property(lambda self: ("", self.id))):
        yield


@contextmanager
def confirmed_before_it_is_stored() -> Iterator[None]:
    """A put is confirmed although the engine gave no answer."""
    really_write = MessageGate._write  # noqa: SLF001

    async def write(self: Any, key: str, body: bytes, note: Any, *, expected: int) -> int:
        try:
            return await really_write(self, key, body, note, expected=expected)
        except Unavailable:
            if not note.attempts and not note.done:
                return 1
            raise

    with patched(MessageGate, "_write", write):
        yield


@contextmanager
def registers_are_not_compared() -> Iterator[None]:
    """A register is replaced whatever its revision is: a gate that is behind undoes another's."""
    really_write = MessageRegisters.write

    def write(
        self: MessageRegisters, key: str, value: bytes, note: bytes, _expected: int, ttl_ms: int
    ) -> int:
        present = self.get(key)
        revision = 0 if present is None else present.revision
        return really_write(self, key, value, note, revision, ttl_ms)

    with patched(MessageRegisters, "write", write):
        yield


MUTANTS: Final[tuple[Mutant, ...]] = (
    acknowledgements_are_kept_in_memory,
    threads_have_no_order,
    confirmed_before_it_is_stored,
    registers_are_not_compared,
)
