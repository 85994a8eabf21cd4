"""Background services for the length of a block: started together and stopped together.

A TaskGroup would wrap the block's own errors into an exception group, and code inside
`async with mesh:` expects a `JobFailed` to arrive as a `JobFailed`. Here the block's errors pass
unchanged. A service that fails cancels the block, and its error is raised instead.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from antiphon.errors import AntiphonError, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator


@asynccontextmanager
async def beside(
    *services: Coroutine[Any, Any, None],
    ready: asyncio.Event | None = None,
    drain: Callable[[], None] | None = None,
) -> AsyncIterator[None]:
    """Run services while the block runs.

    The block begins once `ready` is set. With `drain`, the first service is asked to finish when
    the block ends, and is awaited; the others are cancelled after it.
    """
    block = asyncio.current_task()
    if block is None:
        raise RuntimeError("services need a running task")
    failures: list[BaseException] = []

    def ended(task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failures.append(error)
            if len(failures) == 1:
                block.cancel()

    tasks = [asyncio.ensure_future(service) for service in services]
    for task in tasks:
        task.add_done_callback(ended)
    try:
        if ready is not None:
            await ready.wait()
        yield
        if drain is not None:
            drain()
            await asyncio.wait(tasks[:1])
    except asyncio.CancelledError:
        if failures and block.uncancel() == 0:
            raise _told(failures[0]) from None
        raise
    finally:
        for task in tasks:
            task.remove_done_callback(ended)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _told(failure: BaseException) -> BaseException:
    """The error to raise for a failed service, without the exception groups around it.

    A group that contains anything but our own errors stays whole, so that no bug is hidden.
    """
    causes = list(_leaves(failure))
    if not all(isinstance(cause, AntiphonError) for cause in causes):
        return failure
    return next((cause for cause in causes if not isinstance(cause, Unavailable)), causes[0])


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error
