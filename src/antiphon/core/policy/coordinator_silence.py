"""Whether the coordinator is there (spec §7.4).

It is present while it shows itself: by an op of its own that the rules accepted, or by a signed
answer to a roll call. Nobody takes its place by itself: all that follows from its silence is that
its owner hears of it.

Silence counts only while somebody listens. A node that was asleep or cut off begins to listen
anew, and so does everybody when another coordinator is designated.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

QUIET_AFTER_MS: Final = 120_000


class Watch(Struct, frozen=True, kw_only=True):
    """What one listener knows about one coordinator."""

    coordinator: str
    since_ms: int
    """From here on the listener missed nothing."""
    listened_ms: int
    """When it last listened."""
    shown_ms: int | None = None
    """When the coordinator last showed itself."""
    has_answered: bool = False
    """Whether a process under its key ever answered."""


def watching(watch: Watch | None, coordinator: str, now_ms: int) -> Watch:
    """The watch over whoever coordinates now; a newly designated one starts fresh."""
    if watch is not None and watch.coordinator == coordinator:
        return watch
    return Watch(coordinator=coordinator, since_ms=now_ms, listened_ms=now_ms)


def listened(watch: Watch, now_ms: int, *, gap_ms: int) -> Watch:
    """The listener would have heard an answer just now.

    More than `gap_ms` after the last time it was away itself, and where its clock was set back it
    cannot tell: in both cases its silence before this says nothing about others.
    """
    if not 0 <= now_ms - watch.listened_ms <= gap_ms:
        return replace(watch, since_ms=now_ms, listened_ms=now_ms)
    return replace(watch, listened_ms=now_ms)


def shown(watch: Watch, by: str, at_ms: int, *, is_answer: bool) -> Watch:
    """A node showed itself; that of anyone but the coordinator changes nothing."""
    if by != watch.coordinator:
        return watch
    newest = at_ms if watch.shown_ms is None else max(at_ms, watch.shown_ms)
    return replace(watch, shown_ms=newest, has_answered=watch.has_answered or is_answer)


def should_ask(watch: Watch, now_ms: int, *, quiet_after_ms: int = QUIET_AFTER_MS) -> bool:
    """Whether a roll call is worth everybody's answer: not right after a sign of life.

    Soon enough, though, that more than one goes unanswered before the silence counts: any message
    may be lost.
    """
    if watch.shown_ms is None or not watch.has_answered:
        return True
    return not 0 <= now_ms - watch.shown_ms < quiet_after_ms // 4


def quiet_since(
    watch: Watch, now_ms: int, *, owner: str, quiet_after_ms: int = QUIET_AFTER_MS
) -> int | None:
    """Since when the coordinator is quiet, or None while it counts as present.

    Until somebody is designated the owner's own key coordinates, and usually no process runs
    under it: nobody waits for that one before it has answered once.
    """
    if watch.coordinator == owner and not watch.has_answered:
        return None
    last_ms = watch.since_ms if watch.shown_ms is None else watch.shown_ms
    is_quiet = now_ms - max(last_ms, watch.since_ms) > quiet_after_ms
    return last_ms if is_quiet else None
