"""Whether the coordinator is online (spec §7.4).

It counts as online after an accepted op of its own, a heartbeat, or a signed answer to a roll
call, which everybody answers: one is made only where heartbeats stay away. Nobody replaces it
automatically: its silence is only reported to the owner.

Silence counts only while a node listens. A node that was asleep or disconnected starts counting
again, and so does every node when another coordinator is designated.
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
    """Since when the listener has missed nothing."""
    listened_ms: int
    """When it last listened."""
    shown_ms: int | None = None
    """When the coordinator was last heard."""
    has_answered: bool = False
    """Whether a process with its key ever answered or sent a heartbeat."""


def watching(watch: Watch | None, coordinator: str, now_ms: int) -> Watch:
    """The watch over the current coordinator; a newly designated one gets a new watch."""
    if watch is not None and watch.coordinator == coordinator:
        return watch
    return Watch(coordinator=coordinator, since_ms=now_ms, listened_ms=now_ms)


def listened(watch: Watch, now_ms: int, *, gap_ms: int) -> Watch:
    """The listener was listening just now.

    If the last time is more than `gap_ms` ago it was not listening in between, and if its clock
    was set back it cannot know. In both cases silence before now does not count.
    """
    if not 0 <= now_ms - watch.listened_ms <= gap_ms:
        return replace(watch, since_ms=now_ms, listened_ms=now_ms)
    return replace(watch, listened_ms=now_ms)


def shown(watch: Watch, by: str, at_ms: int, *, is_answer: bool) -> Watch:
    """A node was heard; only the coordinator changes anything."""
    if by != watch.coordinator:
        return watch
    newest = at_ms if watch.shown_ms is None else max(at_ms, watch.shown_ms)
    return replace(watch, shown_ms=newest, has_answered=watch.has_answered or is_answer)


def should_ask(
    watch: Watch, now_ms: int, *, owner: str, quiet_after_ms: int = QUIET_AFTER_MS
) -> bool:
    """Whether to make a roll call: not right after the coordinator was heard.

    But soon enough that more than one goes unanswered before the silence counts, since any
    message may be lost. Nobody asks for the owner's key, under which usually no process runs.
    """
    if watch.shown_ms is None or not watch.has_answered:
        return watch.coordinator != owner
    return not 0 <= now_ms - watch.shown_ms < quiet_after_ms // 4


def quiet_since(
    watch: Watch, now_ms: int, *, owner: str, quiet_after_ms: int = QUIET_AFTER_MS
) -> int | None:
    """Since when the coordinator is silent, or None while it counts as online.

    Until one is designated, the owner's key is the coordinator, and usually no process runs with
    it: its silence counts only after it has answered once.
    """
    if watch.coordinator == owner and not watch.has_answered:
        return None
    last_ms = watch.since_ms if watch.shown_ms is None else watch.shown_ms
    is_quiet = now_ms - max(last_ms, watch.since_ms) > quiet_after_ms
    return last_ms if is_quiet else None
