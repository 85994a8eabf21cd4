"""Where a mesh will be: announced by its owner, repeated by the gate, kept by members.

A mesh moves when its backup is restored on another machine, or under another name. Members that
heard of the new address beforehand go there by themselves: they try all addresses they know.
A wrong address can harm nobody. A member talks to no server without the certificate of its mesh's
own authority; the signature only keeps others from filling its list.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from msgspec import Meta, Struct, structs

from antiphon.core.bus.signed_message import Message, MessageType, Refused
from antiphon.core.bus.subjects import ADDRESS
from antiphon.errors import AntiphonError, Malformed, Unavailable
from antiphon.files import replace_file
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from antiphon.ports import Bus, Keyring
    from antiphon.runtime.identity.state_directory import MeshFile, StateDirectory
    from antiphon.runtime.log.session import Session

MOST_ADDRESSES: Final = 3
"""Those that are gone cost seconds at every start."""
MAX_BYTES: Final = 8 * 1024
EVERY_S: Final = 5.0
"""How often the gate repeats an announcement: whoever is connected for longer has heard it."""
AGAIN_S: Final = 15.0
FILE: Final = "address"

log = LazyLogger(__name__)


class NewAddress(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the mesh's server can be reached from now on, or soon."""

    engine: Annotated[str, Meta(max_length=1024)]
    """`nats://host:port`, or several with commas between them."""


NEW_ADDRESSES: Final = MessageType("address", NewAddress, max_bytes=MAX_BYTES)


def check_address(text: str) -> str:
    """An address such as `nats://host:4222`, or `host:4222`; `Malformed` if it is none."""
    address = text if "://" in text else f"nats://{text}"
    with suppress(ValueError):
        parts = urlsplit(address)
        is_plain = parts.scheme in {"nats", "tls"} and parts.path in {"", "/"}
        if is_plain and parts.hostname and parts.port and not parts.username and "," not in text:
            return f"{parts.scheme}://{parts.netloc}"
    raise Malformed(
        f"{text!r} is not an address", reason="address", hint="for example: nats://host:4222"
    )


def with_address(described: MeshFile, engine: str, *, moved_ms: int = 0) -> MeshFile:
    """A mesh at other addresses; those that were known before are tried last."""
    found = dict.fromkeys([*engine.split(","), *described.engine.split(",")])
    known = ",".join([*found][:MOST_ADDRESSES])
    return structs.replace(described, engine=known, moved_ms=moved_ms or described.moved_ms)


def announce(folder: Path, mesh: str, engine: str, owner: Keyring, *, now_ms: int) -> None:
    """Have the gate of this folder announce an address, from now on and after a restart."""
    signer = (owner.did, owner.sign)
    body = NewAddress(engine=engine)
    payload = NEW_ADDRESSES.sign(body, signer, mesh=mesh, subject=ADDRESS.at(), at_ms=now_ms)
    replace_file(folder / FILE, payload)


async def keep_announcing(folder: Path, bus: Bus) -> None:
    """Repeat what is to be announced, if anything, until cancelled."""
    while True:
        # A file that cannot be read, or a bus that is away, must not end the gate.
        with suppress(OSError, Unavailable):
            payload = await asyncio.to_thread((folder / FILE).read_bytes)
            await bus.publish(ADDRESS.at(), payload)
        await asyncio.sleep(EVERY_S)


async def keep_following(home: StateDirectory, session: Session) -> None:
    """Store the addresses that the owner announces in a member's state directory."""
    while True:
        try:
            async with session.engine.bus.subscribe(ADDRESS.at(), max_pending=4) as heard:
                async for message in heard:
                    await _heard(home, session, message.payload)
        except (AntiphonError, OSError) as problem:
            log.warning("addresses_not_heard", problem=str(problem))
        await asyncio.sleep(AGAIN_S)


async def _heard(home: StateDirectory, session: Session, payload: bytes) -> None:
    found = NEW_ADDRESSES.open(payload, mesh=session.mesh, subject=ADDRESS.at())
    described = await asyncio.to_thread(home.mesh)
    if isinstance(found, Refused) or found.at_ms <= described.moved_ms:
        return
    if found.author == (await session.sync_control()).owner:
        await asyncio.to_thread(_keep, home, described, found)


def _keep(home: StateDirectory, described: MeshFile, found: Message[NewAddress]) -> None:
    engine = ",".join(map(check_address, found.body.engine.split(",")))
    home.write_mesh(with_address(described, engine, moved_ms=found.at_ms))
    log.info("address_announced", engine=engine)
