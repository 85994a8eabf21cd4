"""A part of a mesh that runs in a task of its own, so that it shows which part was brought down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")
TOLD: Final = 300
"""Characters of an error that are told."""


class BroughtDown(Exception):
    """A part of the mesh did not come up, or ended."""


class Participant(Generic[T]):
    """Enters a context in its own task, and stays there until it is stopped."""

    def __init__(
        self,
        called: str,
        place: Callable[[], AbstractAsyncContextManager[T]],
        *,
        patience_s: float,
    ) -> None:
        self.called = called
        self._place = place
        self._patience_s = patience_s
        self._entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._leaving = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> T:
        """What the context gives; its own error if it does not come up."""
        self._task = asyncio.ensure_future(self._run())
        await asyncio.wait(
            (self._task, self._entered),
            timeout=self._patience_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._entered.done():
            return self._entered.result()
        if self._task.done():
            self._task.result()
        raise BroughtDown(f"the {self.called} did not come up within {self._patience_s:g} s")

    async def _run(self) -> None:
        async with self._place() as given:
            self._entered.set_result(given)
            await self._leaving.wait()

    def check(self) -> None:
        """`BroughtDown` if it ended by itself."""
        if self._task is not None and self._task.done() and not self._leaving.is_set():
            error = None if self._task.cancelled() else self._task.exception()
            raise BroughtDown(f"the {self.called} was brought down: {error!r}"[:TOLD])

    async def stop(self) -> None:
        """Leave the context; errors on the way out were reported before."""
        self._leaving.set()
        if self._task is None:
            return
        for _ in range(2):
            await asyncio.wait((self._task,), timeout=self._patience_s)
            if self._task.done():
                break
            self._task.cancel()
        with suppress(BaseException):
            self._task.result()
