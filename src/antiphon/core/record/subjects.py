"""Kinds, and the subjects that every mesh has (spec §8).

A mesh's log is under `ap.<mesh>`; the families define its branches (`core.record.branches`). Kinds
are subject tokens, so filters and permissions work by prefix. A kind begins with a letter, and no
token of it has 64 characters, so it never looks like a job id.
"""

from __future__ import annotations

import re

from antiphon.errors import Malformed

ROOT = "ap"

MAX_KIND_LENGTH = 128
MAX_KIND_TOKENS = 8
_TOKEN = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_KIND = re.compile(rf"(?=[a-z]){_TOKEN}(?:\.{_TOKEN}){{0,{MAX_KIND_TOKENS - 1}}}", re.ASCII)


def is_kind(text: str) -> bool:
    """Whether `text` is a well-formed kind, such as `render.video.h264`."""
    return len(text) <= MAX_KIND_LENGTH and _KIND.fullmatch(text) is not None


def check_kind(text: str) -> str:
    """`text` itself, or `Malformed` with what a kind looks like."""
    if not is_kind(text):
        raise Malformed(
            f"{text!r} is not a kind",
            reason="kind",
            hint="use dotted lower-case words such as 'render.video' (a-z, 0-9, '-' and '_')",
        )
    return text


def covers(prefix: str, kind: str) -> bool:
    """Whether a kind prefix covers a kind: itself, or anything below it."""
    return kind == prefix or kind.startswith(prefix + ".")


def root(mesh: str) -> str:
    """The subject prefix of a mesh's whole log."""
    return f"{ROOT}.{mesh}"


def control(mesh: str, what: str) -> str:
    """The subject of a control op."""
    return f"{ROOT}.{mesh}.ctl.{what}"


def all_control(mesh: str) -> str:
    """Filter: every control op."""
    return f"{ROOT}.{mesh}.ctl.>"


def seal(mesh: str) -> str:
    """The subject of the coordinator's seals."""
    return f"{ROOT}.{mesh}.seal"


def matches(pattern: str, subject: str) -> bool:
    """Whether a subject matches a filter with `*` (one token) and `>` (one or more)."""
    if pattern in (">", subject):
        return True
    wanted = pattern.split(".")
    tokens = subject.split(".")
    for at, want in enumerate(wanted):
        if want == ">":
            return len(tokens) > at
        if at >= len(tokens) or want not in ("*", tokens[at]):
            return False
    return len(wanted) == len(tokens)
