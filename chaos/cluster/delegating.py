"""Delegations that no word of `antiphon delegate` grants, and tokens of those who hold them."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from msgspec import UNSET

from antiphon.core.authority.delegations import token_of
from antiphon.core.bar_tokens.bar_token import BarToken, Refusal, Role, choose_chain, issue
from antiphon.core.families.grants.ops import DelegateBody, UcanDelegate
from antiphon.core.ucan import Payload, Policy
from antiphon.ports import Keyring
from antiphon.runtime.log.session import Session
from antiphon.runtime.log.writer import Intent, write_one

NONCE_BYTES: Final = 12


async def pass_on(
    session: Session, giver: Keyring, to: str, *, command: str = "/", policy: Any = ()
) -> None:
    """Delegate what a key has to another one: all of it, or by a command and a policy."""
    payload = Payload(
        iss=giver.did,
        aud=to,
        sub=None,
        cmd=command,
        pol=Policy([*policy]),
        nonce=os.urandom(NONCE_BYTES),
        exp=None,
        meta=UNSET,
    )
    body = DelegateBody(token=token_of(giver.delegate(payload).raw))
    await write_one(session, Intent(UcanDelegate, body))


def chain_of(session: Session, did: str, *, project: str, role: Role) -> tuple[str, ...]:
    """The delegations that a token of this key names; empty if it can have none."""
    now_ms = session.wall.now_ms()
    found = choose_chain(session.control, did, project=project, role=role, now_ms=now_ms)
    return () if isinstance(found, Refusal) else found


def token_by(
    key: Keyring,
    chain: tuple[str, ...],
    *,
    mesh: str,
    project: str,
    role: Role,
    age_ms: int = 0,
) -> str:
    """A bar-bound token as text, whether or not the chain allows it."""
    downbeat_ms = time.time_ns() // 1_000_000 - age_ms
    token = BarToken(delegation=chain, project=project, role=role, downbeat_ms=downbeat_ms)
    return issue(token, (key.did, key.sign), mesh=mesh)
