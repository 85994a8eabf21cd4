"""Objects of the async mesh whose methods wait: `BlockingMesh.locks`, a lock, a message, an inbox.

One class stands for all of them. A call runs on the loop thread and returns its result; `async
with` becomes `with`, `async for` becomes `for`. Type checkers read waiting.pyi, which
`scripts/blocking-types` derives from the async classes.
"""

import functools
import inspect

from antiphon.sdk.blocking.loop_thread import OpenContext, run
from antiphon.sdk.connection.namespace import Namespace

_ASYNC = ("__aenter__", "__aiter__", "__anext__")


class Waiting:
    """An object of the async mesh, for any thread."""

    def __init__(self, of):
        """`of` gives the object: a forked child, or a mesh that is opened again, has another."""
        self._of = of
        self._entered = None

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return _waits(getattr(self._of(), name))

    def __dir__(self):
        return [name for name in dir(self._of()) if not name.startswith("_")]

    def __getitem__(self, key):
        return _waits(self._of()[key])

    def __enter__(self):
        self._entered = OpenContext(self._of())
        self._entered.open()
        return _waits(self._entered.value)

    def __exit__(self, *_):
        self._entered.close()

    def __iter__(self):
        return self

    def __next__(self):
        source, end = self._of(), object()
        found = run(_called(anext, (source, end), {}))
        if found is end:
            raise StopIteration
        return _waits(found)

    def __repr__(self):
        return f"<waiting: {self._of()!r}>"


class BlockingNamespaces:
    """The namespaces of the async mesh, on `BlockingMesh`: those that `Mesh` declares."""

    def __init_subclass__(cls, *, of):
        super().__init_subclass__()
        for name, one in vars(of).items():
            if isinstance(one, Namespace):
                setattr(cls, name, property(functools.partial(_namespace, name)))


def _namespace(name, mesh):
    return Waiting(lambda: getattr(mesh.unblocked, name))


def _waits(found):
    """What any thread can use in place of what the async mesh gave."""
    if inspect.ismethod(found):

        @functools.wraps(found)
        def call(*args, **kwargs):
            return _waits(run(_called(found, args, kwargs)))

        return call
    return Waiting(lambda: found) if _is_async(type(found)) else found


@functools.cache
def _is_async(of):
    found = inspect.getmembers(of, inspect.iscoroutinefunction)
    return any(hasattr(of, name) for name in _ASYNC) or bool(found)


async def _called(function, args, kwargs):
    given = {name: _unblocked(one) for name, one in kwargs.items()}
    found = function(*map(_unblocked, args), **given)
    return await found if inspect.isawaitable(found) else found


def _unblocked(given):
    """A handle of this façade as the async mesh's own."""
    return getattr(given, "unblocked", given)
