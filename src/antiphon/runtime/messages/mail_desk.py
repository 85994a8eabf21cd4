"""Answers what members ask the gate about messages (`mail_requests`).

A request comes from an engine user, which the server has authenticated. Limits are counted by that
user, before a signature is checked. Whose inbox it is about is the key that signed it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from antiphon.core.bus.signed_message import Refused
from antiphon.core.record.ids import agent_address
from antiphon.errors import AntiphonError, Malformed
from antiphon.runtime.messages import mail_requests
from antiphon.runtime.messages.mail_gate import Reading
from antiphon.runtime.messages.mail_requests import MailAnswer, MailRequest
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.messages.mail_gate import MailGate

log = LazyLogger(__name__)


class MailDesk:
    """One gate's, for members."""

    def __init__(self, session: Session, gate: MailGate) -> None:
        self._session = session
        self._gate = gate

    def refusal(self, user: str, verb: str) -> bytes | None:
        """The answer to one that asks too much, before its request is looked at; None: look."""
        limited = self._gate.limit_on(user) if verb == mail_requests.PUT else None
        return None if limited is None else mail_requests.told(limited)

    async def answer(self, user: str, verb: str, payload: bytes) -> bytes:
        """The answer to one request, whatever it is."""
        try:
            if verb == mail_requests.PUT:
                found = await self._put(user, payload)
            else:
                found = await self._serve(user, payload)
            return mail_requests.encode_answer(found)
        except AntiphonError as error:
            return mail_requests.told(error)
        except Exception as error:
            log.exception("mail_request_failed")
            return mail_requests.told(error)

    async def _put(self, user: str, payload: bytes) -> MailAnswer:
        try:
            put = mail_requests.decode_put(payload)
        except msgspec.MsgspecError as problem:
            raise Malformed("the gate does not understand this message") from problem
        done = await self._gate.put(put.receiver, put.envelope, by=user)
        return MailAnswer(id=done.id, is_duplicate=done.is_duplicate)

    async def _serve(self, user: str, payload: bytes) -> MailAnswer:
        opened = mail_requests.REQUESTS.open(
            payload,
            mesh=self._session.mesh,
            subject=mail_requests.request_subject(user),
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
                return MailAnswer(handed=tuple(await self._gate.read(reading, by=user)))
            case "threads":
                return MailAnswer(threads=tuple(await self._gate.threads(address, by=user)))
            case "dead":
                letters = await self._gate.dead(address, by=user, limit=request.limit)
                return MailAnswer(dead=tuple(letters))
            case _:
                return await self._settle(user, address, request)

    async def _settle(self, user: str, address: str, request: MailRequest) -> MailAnswer:
        gate = self._gate
        if request.do == "ack":
            await asyncio.gather(
                *(gate.ack(address, one.id, one.revision, by=user) for one in request.named)
            )
            return MailAnswer()
        for one in request.named:
            if request.do == "extend":
                held = await gate.extend(
                    address, one.id, one.revision, by=user, lease_ms=request.lease_ms
                )
                return MailAnswer(handed=(held,))
            await gate.nack(
                address,
                one.id,
                one.revision,
                by=user,
                delay_ms=request.delay_ms,
                error=request.error,
            )
        return MailAnswer()
