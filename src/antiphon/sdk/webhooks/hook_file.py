"""Which webhooks a node takes: the file `webhooks.toml` of its state directory.

    [ship]
    secret = "…"
    submit = "release.ship"

Whoever runs the machine writes it, and nobody else can read it. It is read again when it changes.
"""

from __future__ import annotations

import stat
import tomllib
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from antiphon.core.record.subjects import is_kind
from antiphon.errors import Misconfigured
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "webhooks.toml"
MOST: Final = 100
FILE_BYTES: Final = 64 * 1024
LEAST_SECRET: Final = 16
_OTHERS: Final = 0o077

_log = LazyLogger(__name__)


class Hook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One webhook."""

    secret: Annotated[str, Meta(min_length=LEAST_SECRET, max_length=256)]
    submit: str = ""
    """The kind of job that a request becomes."""
    args: Annotated[tuple[str, ...], Meta(max_length=16)] | None = None
    """Places in the body, such as `repository.name`: the job's arguments. None: the whole body."""
    answer: str = ""
    """Questions of this kind and below it are answered by a request."""
    plain: bool = False
    """Whether a request may show the secret instead of signing."""

    def __repr__(self) -> str:
        return f"Hook(submit={self.submit!r}, answer={self.answer!r})"


def read_hooks(path: Path) -> dict[str, Hook]:
    """The webhooks in a file, by name; none if there is no file. `Misconfigured` if it is wrong."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            text = file.read(FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise Misconfigured(f"{path} cannot be read: {problem.strerror}") from None
    if stat.S_IMODE(mode) & _OTHERS:
        raise Misconfigured(
            f"{path} contains secrets, and other users of this machine could read it",
            hint=f"chmod 600 {path}",
        )
    if len(text) > FILE_BYTES:
        raise Misconfigured(f"{path} has more than {FILE_BYTES:,} bytes")
    try:
        found = msgspec.convert(tomllib.loads(text.decode()), dict[str, Hook])
    except (msgspec.ValidationError, tomllib.TOMLDecodeError, UnicodeError) as problem:
        raise Misconfigured(f"{path} does not say which webhooks there are: {problem}") from None
    if len(found) > MOST:
        raise Misconfigured(f"{path} has more than {MOST} webhooks")
    for name, hook in found.items():
        if bool(hook.submit) == bool(hook.answer):
            raise Misconfigured(
                f"the webhook {name!r} in {path} submits or answers: one of the two",
                hint='submit = "release.ship", or answer = "payment.arrived"',
            )
        if not is_kind(hook.submit or hook.answer):
            raise Misconfigured(f"the webhook {name!r} in {path} names no kind of jobs")
    return found


class HookFile:
    """The webhooks as the file says now."""

    def __init__(self, path: Path | None) -> None:
        """Reads it; `Misconfigured` if it is wrong."""
        self._path = path
        self._hooks: dict[str, Hook] = read_hooks(path) if path is not None else {}
        self._seen = self._stamp()

    def hook(self, name: str) -> Hook | None:
        """The webhook of this name. A file that became wrong leaves what was read before."""
        seen = self._stamp()
        if seen != self._seen and self._path is not None:
            self._seen = seen
            try:
                self._hooks = read_hooks(self._path)
            except Misconfigured as problem:
                _log.warning("webhooks_not_read", problem=problem.message, try_=problem.hint)
        return self._hooks.get(name)

    def _stamp(self) -> tuple[int, int, int]:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            found = None
        return (found.st_mtime_ns, found.st_size, found.st_mode) if found else (0, 0, 0)
