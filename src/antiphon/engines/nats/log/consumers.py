"""A durable pull consumer: created if missing, compared if it exists."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from antiphon.engines.nats.log.streams import ApiFailure, Streams
from antiphon.errors import EngineDenied, Misconfigured, OutcomeUnknown

MAX_WAITING = 65_536
"""Pull requests that may wait at the engine: 10,000 workers with several each."""
_ALREADY_EXISTS = 10148
_CREATE_ATTEMPTS = 3
_NS_PER_S = 1_000_000_000


def consumer_config(name: str, subject: str, loan_s: float) -> dict[str, Any]:
    """One filter, explicit acknowledgement, and no bound that could strand a job."""
    return {
        "durable_name": name,
        "name": name,
        "filter_subject": subject,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": int(loan_s * _NS_PER_S),
        "max_deliver": -1,
        "max_ack_pending": -1,
        "max_waiting": MAX_WAITING,
        "replay_policy": "instant",
    }


class Consumer:
    """One by its name, and what it should be."""

    def __init__(self, streams: Streams, *, stream: str, name: str, subject: str) -> None:
        self._streams = streams
        self._stream = stream
        self._name = name
        self._subject = subject

    async def make(self, loan_s: float) -> float:
        """Create it if missing; returns its acknowledgement wait."""
        config = consumer_config(self._name, self._subject, loan_s)
        subject = f"$JS.API.CONSUMER.CREATE.{self._stream}.{self._name}.{self._subject}"
        body = {"stream_name": self._stream, "config": config, "action": "create"}
        for attempt in range(_CREATE_ATTEMPTS):
            try:
                await self._streams.call(subject, body)
            except EngineDenied:
                break  # a member that may pull but not create: the gate made it
            except OutcomeUnknown:
                if attempt + 1 == _CREATE_ATTEMPTS:
                    raise
            except ApiFailure as failure:
                if failure.err_code == _ALREADY_EXISTS:
                    return await self._compare(config)
                if attempt + 1 == _CREATE_ATTEMPTS:
                    raise
                await asyncio.sleep(0.1 * (attempt + 1))  # another creator, or no leader yet
            else:
                break
        return loan_s

    async def _compare(self, wanted: dict[str, Any]) -> float:
        answer = await self._streams.call(f"$JS.API.CONSUMER.INFO.{self._stream}.{self._name}")
        found = msgspec.json.decode(answer)["config"]
        fields = ("filter_subject", "ack_policy", "deliver_policy", "max_deliver")
        different = [
            f"{field} is {found.get(field)!r}, should be {wanted[field]!r}"
            for field in fields
            if found.get(field) != wanted[field]
        ]
        if different:
            raise Misconfigured(
                f"the queue {self._name} exists with other settings: {'; '.join(different)}",
                hint="delete that consumer, or use another queue name",
            )
        loan_s: float = found.get("ack_wait", 0) / _NS_PER_S
        return loan_s
