"""Graphs where nothing is awaited: `with mesh.graph() as g`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from antiphon.sdk.blocking.blocking_handle import BlockingHandle
from antiphon.sdk.blocking.loop_thread import OpenContext, run
from antiphon.sdk.graphs.graph import GraphPlan

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from antiphon.sdk.call_options import Duration
    from antiphon.sdk.graphs.step import CommandStep
    from antiphon.sdk.mesh import Mesh

R = TypeVar("R")


class BlockingGraph(GraphPlan):
    """A graph of a `BlockingMesh`; its methods wait."""

    def __init__(self, opened: Callable[[], OpenContext[Mesh]]) -> None:
        """Made by `BlockingMesh.graph`."""
        super().__init__()
        self._open = opened

    def __enter__(self) -> Self:
        self._next()
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            self.abandon()
            return
        run(self.submit(self._open().value.connection))

    @overload
    def handle(self, step: CommandStep) -> BlockingHandle[None]: ...

    @overload
    def handle(self, step: R) -> BlockingHandle[R]: ...

    def handle(self, step: Any) -> BlockingHandle[Any]:
        """The handle of a step's job, after the block."""
        return BlockingHandle(self._open(), self._handle(step))

    def result(self, step: R, timeout: Duration | None = None) -> R:
        """Wait for a step's result, or for those of a list of steps, after the block."""
        return run(self._result(step, timeout))
