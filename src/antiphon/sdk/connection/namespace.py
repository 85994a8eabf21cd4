"""One line on `Mesh` for each namespace: `mesh.locks`, `mesh.messages`, `mesh.plans`.

    locks: Namespace[Locks] = Namespace("antiphon.sdk.locks.namespace.Locks")

The class is imported when a program first uses it, so a program pays only for what it uses. It is
made once for each mesh, with the mesh's `Connection`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, overload

if TYPE_CHECKING:
    from antiphon.sdk.connection.connection import Connection

N = TypeVar("N")


class Connected(Protocol):
    """What has namespaces."""

    @property
    def connection(self) -> Connection:
        """What they are made with."""


class Namespace(Generic[N]):
    """An attribute that is made on first use."""

    def __init__(self, where: str) -> None:
        """`where` is a module and a class in it."""
        self.where = where

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, mesh: None, owner: type) -> Self: ...

    @overload
    def __get__(self, mesh: Connected, owner: type) -> N: ...

    def __get__(self, mesh: Any, owner: type) -> Any:
        if mesh is None:
            return self
        # From now on the instance's own attribute is found first.
        made = self.load()(mesh.connection)
        mesh.__dict__[self._name] = made
        return made

    def load(self) -> Any:
        """Its class."""
        module, _, name = self.where.rpartition(".")
        return getattr(import_module(module), name)
