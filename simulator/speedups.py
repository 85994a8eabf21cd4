"""What makes a run quick and changes nothing in it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from antiphon.core import opened_record
from antiphon.core.protocol import Protocol
from antiphon.core.ucan import Delegation, signatures


@contextmanager
def quiet_and_quick() -> Iterator[None]:
    """Silence the runtime's log lines, and open and verify everything once for all readers.

    Both are pure functions of bytes: remembering their results changes nothing but the time that
    a run takes.
    """
    before = structlog.get_config()
    known: dict[tuple[str, int, int, str, bytes], opened_record.OpenedRecord] = {}
    verified: dict[bytes, bool] = {}
    really_open, really_verify = opened_record.open_record, signatures.is_signed

    def open_once(
        protocol: Protocol, mesh: str, seq: int, commit_ms: int, subject: str, payload: bytes
    ) -> opened_record.OpenedRecord:
        key = (mesh, seq, commit_ms, subject, payload)
        opened = known.get(key)
        if opened is None:
            opened = known[key] = really_open(protocol, *key)
        return opened

    def verify_once(delegation: Delegation) -> bool:
        known = verified.get(delegation.raw)
        if known is None:
            known = verified[delegation.raw] = really_verify(delegation)
        return known

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    opened_record.open_record, signatures.is_signed = open_once, verify_once
    try:
        yield
    finally:
        opened_record.open_record, signatures.is_signed = really_open, really_verify
        structlog.configure(**before)


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave cycles lie while a run lasts: collecting them costs a tenth of it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        gc.collect()
