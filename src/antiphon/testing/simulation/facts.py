"""A record read without the core: plain JSON, plain dictionaries, nothing decided.

The laws must not lean on the code that they watch. So they take type, author, time, predecessor
and subject from the bytes themselves, with a few lines of their own.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from blake3 import blake3
from msgspec import Struct

from antiphon.ports import Record

Key = tuple[str, str]
"""A job: (kind, job id)."""

_decode = msgspec.json.Decoder().decode


class Fact(Struct, frozen=True):
    """What a record says about itself, whether or not it is true."""

    type: str
    author: str
    wall_ms: int
    logical: int
    prev: int
    body: dict[str, Any]
    op_bytes: bytes
    home: str
    """The subject on which such an op belongs."""

    @property
    def fence(self) -> str:
        """The fence that the op carries; empty if it carries none."""
        return str(self.body.get("fence") or "")

    @property
    def own_fence(self) -> str:
        """The fence that a claim begins: its own time, packed."""
        return f"{(self.wall_ms << 16) | self.logical:016x}"


def read(mesh: str, record: Record) -> Fact | None:
    """The fact in a record, or None if there is none to be read."""
    op_bytes, _, _ = record.payload.partition(b"\n")
    try:
        op = _decode(op_bytes)
        wall_ms, logical = op["hlc"]
        return Fact(
            type=op["type"],
            author=op["author"],
            wall_ms=int(wall_ms),
            logical=int(logical),
            prev=int(op["prev"]),
            body=op["body"],
            op_bytes=op_bytes,
            home=_home(mesh, op["type"], op["body"]),
        )
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError):
        return None


def key_of(record: Record) -> Key | None:
    """The job whose lane a record lies in, by its subject; None outside the lanes."""
    parts = record.subject.split(".")
    skip = {"job": 3, "wait": 3, "call": 4}.get(parts[2] if len(parts) > 2 else "", 0)  # noqa: PLR2004
    if not skip or len(parts) < skip + 2 or (skip == 4 and parts[3] not in "012"):  # noqa: PLR2004
        return None
    return ".".join(parts[skip:-1]), parts[-1]


def _home(mesh: str, kind_of_op: str, body: dict[str, Any]) -> str:
    family, _, what = kind_of_op.partition(".")
    root = f"ap.{mesh}"
    if family == "mesh":
        return f"{root}.ctl.{what}.{body['kind']}" if what == "route" else f"{root}.ctl.{what}"
    if what == "schedule":
        waits = any(name in body for name in ("after", "not_before", "concurrency"))
        where = "wait" if waits else f"call.{body.get('class', 1)}"
        return f"{root}.{where}.{body['kind']}.{_job_id(body['manifest'])}"
    if what == "offer":
        return f"{root}.call.{body.get('class', 1)}.{body['kind']}.{body['job']}"
    return f"{root}.job.{body['kind']}.{body['job']}"


def _job_id(manifest: dict[str, Any]) -> str:
    core = {name: value for name, value in manifest.items() if name != "ulid"}
    text = json.dumps(core, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake3(text.encode()).hexdigest()
