"""What a webhook's request becomes: a job, or an answer. The node's program signs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed
from antiphon.sdk.webhooks.hook_file import Hook, HookFile
from antiphon.sdk.webhooks.signature import check_sender, wrong_sender

if TYPE_CHECKING:
    from collections.abc import Mapping


class HookAnswer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a request that answers a question."""

    question: str
    """The question's id, or the beginning of it."""
    answer: Any


class Wanted(Struct, frozen=True, kw_only=True):
    """What a request asks for, by somebody who has the secret."""

    hook: Hook
    args: tuple[Any, ...] = ()
    key: str = ""
    """The same for the same request; empty if each is a new one."""
    answer: HookAnswer | None = None


class Incoming:
    """The webhooks of one node."""

    def __init__(self, hooks: HookFile) -> None:
        self._hooks = hooks

    def wanted(self, name: str, headers: Mapping[str, str], body: bytes, *, now_s: int) -> Wanted:
        """What a request asks for; `Rejected` or `Malformed` if it may not, or says nothing."""
        hook = self._hooks.hook(name)
        if hook is None:
            raise wrong_sender()
        secret = hook.secret.encode()
        told = check_sender(secret, headers, body, now_s=now_s, plain=hook.plain)
        if hook.answer:
            return Wanted(hook=hook, answer=_decoded(body, HookAnswer))
        value = _decoded(body, Any)
        args = (value,) if hook.args is None else tuple(_at(value, path) for path in hook.args)
        return Wanted(hook=hook, args=args, key=f"{name} {told}" if told else "")


def _decoded(body: bytes, of: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=of)
    except UNREADABLE as problem:
        raise Malformed(
            f"the body is not what is asked for: {problem}", reason="malformed"
        ) from None


def _at(value: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 9:  # noqa: PLR2004
            value = value[int(part)] if int(part) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(part)
        else:
            value = None
        if value is None:
            raise Malformed(f"the body has no {path}", reason="malformed")
    return value
