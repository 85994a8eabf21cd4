"""What it means to take a feature out: one attribute, named by where it is, gets another value.

A `Break` names its attribute as entry points do, `package.module:Class.method`, and has a function
from the old value to the new one. Nothing is written to disk: `install` adds an import hook, which
replaces the attribute as soon as its module was executed, before anybody can import the name from
it. Naming a function *where it is used* (`antiphon.runtime.tempo.pulse:beat_frame`) takes out the
use and leaves the function to its own tests: that is how a feature that nothing calls is found.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests import import_hook

Change = Callable[[Any], Any]
"""From the value that is there to the one that takes its place."""


@dataclass(frozen=True)
class Break:
    """One feature, and how it is taken out."""

    where: str
    change: Change
    what: str
    """What does not hold any more; follows "without it"."""

    @property
    def module(self) -> str:
        """The module that the attribute is in, or in a class of."""
        return self.where.partition(":")[0]

    def apply(self, module: ModuleType) -> None:
        """Replace the attribute in the module that was just executed."""
        *owners, name = self.where.partition(":")[2].split(".")
        owner: Any = module
        for each in owners:
            owner = getattr(owner, each)
        setattr(owner, name, self.change(self.found(owner, name)))

    def found(self, owner: Any, name: str) -> Any:
        """The attribute as its owner has it: a method that only a base class has is not there."""
        try:
            return vars(owner)[name]
        except KeyError:
            raise LookupError(f"{self.where}: there is no such attribute") from None


# --- what can take a feature's place ----------------------------------------------------------


def becomes(value: Any) -> Change:
    """Another value, for constants and tables."""
    return lambda _: value


def calls(function: Callable[..., Any]) -> Change:
    """Another function, with the arguments of the old one; `self` is the first of a method's."""
    return lambda old: as_before(old, function)


def gives(value: Any) -> Change:
    """A function, method or property that does nothing and gives this."""
    return calls(lambda *_, **__: value)


does_nothing = gives(None)


def around(function: Callable[..., Any]) -> Change:
    """As `calls`, and gets the old function before the arguments."""

    def change(old: Any) -> Any:
        inner = old.fget if isinstance(old, property) else getattr(old, "__func__", old)

        def call(*args: Any, **kwargs: Any) -> Any:
            return function(inner, *args, **kwargs)

        return as_before(old, call)

    return change


def without(*names: str) -> Change:
    """The old function, called without these keyword arguments, so that their defaults hold."""

    def call(old: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return old(*args, **{key: value for key, value in kwargs.items() if key not in names})

    return around(call)


def with_(**wanted: Any) -> Change:
    """The old function, with these keyword arguments whatever its caller says."""
    return around(lambda old, *args, **kwargs: old(*args, **{**kwargs, **wanted}))


def result_with(**fields: Any) -> Change:
    """The old function, with these fields of the struct that it gives changed."""

    def call(old: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from msgspec.structs import replace

        return replace(old(*args, **kwargs), **fields)

    return around(call)


def in_cells(op: str, *states: str, change: Change) -> Change:
    """A transition table in which the cells of an op in these states are changed."""

    def table(old: Any) -> Any:
        return {
            kind: {
                state: change(cell) if kind.__name__ == op and state.value in states else cell
                for state, cell in row.items()
            }
            for kind, row in old.items()
        }

    return table


def cells_like(op: str, *states: str, like: str) -> Change:
    """A transition table in which an op is treated in these states as in another one."""

    def table(old: Any) -> Any:
        other = {
            kind: next(cell for state, cell in row.items() if state.value == like)
            for kind, row in old.items()
        }
        return {
            kind: {
                state: other[kind] if kind.__name__ == op and state.value in states else cell
                for state, cell in row.items()
            }
            for kind, row in old.items()
        }

    return table


def as_before(old: Any, function: Callable[..., Any]) -> Any:
    """The function in the form of what it replaces: async, a property, a method of the class."""
    if isinstance(old, property):
        return property(function)
    inner = getattr(old, "__func__", old)
    if inspect.iscoroutinefunction(inner):
        plain = function

        async def answer(*args: Any, **kwargs: Any) -> Any:
            found = plain(*args, **kwargs)
            return await found if inspect.isawaitable(found) else found

        function = answer
    return type(old)(function) if isinstance(old, staticmethod | classmethod) else function


# --- the import hook --------------------------------------------------------------------------


def replacing(breaks: Sequence[Break]) -> Callable[[Any], None]:
    """Makes a module's loader apply these breaks as soon as it was executed."""

    def change(loader: Any) -> None:
        execute = loader.exec_module

        def execute_and_replace(module: ModuleType) -> None:
            execute(module)
            for each in breaks:
                each.apply(module)

        loader.exec_module = execute_and_replace

    return change


def install(breaks: Iterable[Break]) -> None:
    """From here on this process imports the broken features."""
    of_module: dict[str, list[Break]] = {}
    for each in breaks:
        of_module.setdefault(each.module, []).append(each)
    import_hook.install({name: replacing(some) for name, some in of_module.items()})
