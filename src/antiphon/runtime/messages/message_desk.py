"""Answers what members ask the gate about messages (`message_requests`).

A request comes from an engine user, which the server has authenticated. Limits are counted by that
user's party, before a signature is checked. Whose inbox it is about is the key that signed it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from antiphon.core.bus.signed_message import Refused
from antiphon.core.record.ids import agent_address
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed
from antiphon.runtime.messages import message_requests
from antiphon.runtime.messages.message_gate import Reading
from antiphon.runtime.messages.message_requests import MessageAnswer, MessageRequest

if TYPE_CHECKING:
    from antiphon.errors import AntiphonError
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.messages.message_gate import MessageGate


class MessageDesk:
    """One gate's, for members."""

    def __init__(self, session: Session, gate: MessageGate) -> None:
        self._session = session
        self._gate = gate

    def limit_on(self, party: str, verb: str) -> AntiphonError | None:
        """Why a party may send no more now, before its request is looked at; None: it may."""
        return self._gate.limit_on(party) if verb == message_requests.PUT else None

    def told(self, error: AntiphonError) -> bytes:
        """An error as the asker gets it."""
        return message_requests.told(error)

    async def answer(self, user: str, party: str, verb: str, payload: bytes) -> bytes:
        """The answer to one request; raises what the asker is told."""
        if verb == message_requests.PUT:
            return message_requests.encode_answer(await self._put(party, payload))
        return message_requests.encode_answer(await self._serve(user, party, payload))

    async def _put(self, party: str, payload: bytes) -> MessageAnswer:
        try:
            put = message_requests.decode_put(payload)
        except UNREADABLE as problem:
            raise Malformed("the gate does not understand this message") from problem
        done = await self._gate.put(put.receiver, put.envelope, by=party)
        return MessageAnswer(id=done.id, is_duplicate=done.is_duplicate)

    async def _serve(self, user: str, party: str, payload: bytes) -> MessageAnswer:
        opened = message_requests.REQUESTS.open(
            payload,
            mesh=self._session.mesh,
            subject=message_requests.request_subject(user),
            now_ms=self._session.wall.now_ms(),
        )
        if isinstance(opened, Refused):
            raise Malformed(f"the gate refuses this request: {opened.value}", reason=opened.value)
        request = opened.body
        address = agent_address(opened.author, request.agent)
        match request.do:
            case "read":
                holding = None if request.holding is None else frozenset(request.holding)
                reading = Reading(
                    address=address,
                    session=request.session,
                    limit=request.limit,
                    lease_ms=request.lease_ms,
                    wait_ms=request.wait_ms,
                    thread=request.thread,
                    holding=holding,
                )
                return MessageAnswer(handed=tuple(await self._gate.read(reading, by=party)))
            case "threads":
                return MessageAnswer(threads=tuple(await self._gate.threads(address, by=party)))
            case "dead":
                letters = await self._gate.dead(address, by=party, limit=request.limit)
                return MessageAnswer(dead=tuple(letters))
            case _:
                return await self._settle(party, address, request)

    async def _settle(self, party: str, address: str, request: MessageRequest) -> MessageAnswer:
        gate = self._gate
        if request.do == "ack":
            await asyncio.gather(
                *(gate.ack(address, one.id, one.revision, by=party) for one in request.named)
            )
            return MessageAnswer()
        for one in request.named:
            if request.do == "extend":
                held = await gate.extend(
                    address, one.id, one.revision, by=party, lease_ms=request.lease_ms
                )
                return MessageAnswer(handed=(held,))
            await gate.nack(
                address,
                one.id,
                one.revision,
                by=party,
                delay_ms=request.delay_ms,
                error=request.error,
            )
        return MessageAnswer()
