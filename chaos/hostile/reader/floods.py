"""What a read-only member floods: everything that its login lets it publish, one kind at a time.

Each flood is an endless run of frames. `nowhere` is what the others are compared with: as many
messages, from the same connection, on a subject that nobody listens to.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from msgspec import UNSET, Struct

from antiphon.core.authority.delegations import token_of
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import CancelBody, JobCancel
from antiphon.core.families.mesh.ops import EvidenceBody, MeshEvidence
from antiphon.core.record import codec, signing, subjects
from antiphon.core.record.ids import digest
from antiphon.core.record.op import subject_of
from antiphon.core.ucan import Payload, Policy
from antiphon.runtime.identity.key_files import SeedKeyring
from chaos.network.raw_connection import frame, header

PREPARED: Final = 64
"""Different signed records of each sort; they are sent again and again."""
DEPS: Final = 64


class Reader(Struct, frozen=True, kw_only=True):
    """Who floods, and what it knows of the others."""

    mesh: str
    stream: str
    user: str
    refresh_key: str
    inbox: str
    key: SeedKeyring
    owner: str
    revoked: tuple[str, ...]
    """The grants that the owner may take back."""
    others: tuple[str, ...]
    """The engine users of other members: they are in every answer to a roll call."""

    def to_gate(self, verb: str, body: bytes) -> bytes:
        """A request to the gate."""
        return frame(f"apg.{self.mesh}.{self.user}.{verb}", body, reply=f"{self.inbox}.flood")

    def sign(self, type_: Callable[..., Any], body: Struct, **other: Any) -> tuple[str, bytes]:
        """An op of its own, and where it belongs."""
        fields: dict[str, Any] = {
            "v": 1,
            "mesh": self.mesh,
            "author": self.key.did,
            "hlc": (time.time_ns() // 1_000_000, int.from_bytes(os.urandom(2))),
            "prev": 0,
            "deps": (),
            "auth": (),
            **other,
        }
        key = fields.pop("by", self.key)
        op = type_(**{**fields, "author": key.did}, body=body)
        op_bytes = codec.encode(op)
        block = signing.Block(sig=key.sign(signing.OP_TYPE, op_bytes))
        return subject_of(op, op_bytes), signing.frame(op_bytes, block)


Flood = Callable[[Reader], Iterator[bytes]]


def _asking(verb: str, *bodies: Any) -> Flood:
    def frames(reader: Reader) -> Iterator[bytes]:
        texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in bodies]
        return itertools.cycle([reader.to_gate(verb, text) for text in texts])

    return frames


def nowhere(reader: Reader) -> Iterator[bytes]:
    """Requests as large as the others, for nobody."""
    body = json.dumps({"seq": 1, "batch": 4096}).encode()
    where = f"apb.{reader.mesh}.inbox.{reader.user}.nobody"
    return itertools.repeat(frame(where, body))


def _newest(reader: Reader) -> Iterator[bytes]:
    """Direct gets from the server, which walks all subjects for a wildcard."""
    root = subjects.root(reader.mesh)
    return itertools.cycle(
        frame(f"$JS.API.DIRECT.GET.{reader.stream}.{root}.{what}", reply=f"{reader.inbox}.flood")
        for what in ("ctl.>", "seal", "jobs.*.>")
    )


def _blobs(reader: Reader) -> Iterator[bytes]:
    for number in itertools.count():
        what = {"do": ("get", "has", "put")[number % 3], "digest": digest(b"%d" % (number % 512))}
        job = {"kind": "build.image", "job": os.urandom(32).hex()}
        yield reader.to_gate("blob", json.dumps({**what, **job}).encode())


def _logins(reader: Reader) -> Iterator[bytes]:
    """With its own login it may not even ask for another one."""
    head = header(Antiphon_Reply=f"inbox.{reader.user}.flood")
    for what in itertools.cycle(("login", "join")):
        yield frame(f"apb.{reader.mesh}.gate.{reader.user}.{what}", b"{}", head=head)


def _refreshes(reader: Reader) -> Iterator[bytes]:
    """Requests for logins, which its refresh key may send: junk, since signing would be slower."""
    head = header(Antiphon_Reply=f"inbox.{reader.refresh_key}.flood")
    body = json.dumps({"request": "{}", "sig": "00" * 64}).encode()
    return itertools.repeat(
        frame(f"apb.{reader.mesh}.gate.{reader.refresh_key}.login", body, head=head)
    )


def _rolls(reader: Reader) -> Iterator[bytes]:
    head = header(Antiphon_Reply=f"inbox.{reader.user}.flood")
    call = frame(f"apg.{reader.mesh}.{reader.user}.roll", b"who", head=head)
    return itertools.cycle([*[call] * 63, frame(f"apb.{reader.mesh}.roll", b"who", head=head)])


def _inboxes(reader: Reader) -> Iterator[bytes]:
    """Messages in others' inboxes, where they await answers."""
    places = [f"apb.{reader.mesh}.inbox.{user}.{n}" for user in reader.others for n in range(8)]
    return itertools.cycle(frame(place, bytes(64)) for place in places)


def _evidence(reader: Reader) -> Iterator[bytes]:
    """Against keys that it made up: each has signed two ops with one timestamp."""
    letters = []
    for number in range(PREPARED):
        accused, at = SeedKeyring(os.urandom(32)), (time.time_ns() // 1_000_000, number)
        pair = [
            reader.sign(
                JobCancel,
                CancelBody(kind="x", job="0" * 64, reason=reason),
                by=accused,
                hlc=at,
            )[1].decode()
            for reason in "ab"
        ]
        body = EvidenceBody(node=accused.did, first=pair[0], second=pair[1])
        letters.append(reader.to_gate("post", reader.sign(MeshEvidence, body)[1]))
    return itertools.cycle(letters)


def _revocations(reader: Reader) -> Iterator[bytes]:
    """Of its own grants, by itself and by keys that nobody knows."""
    keys = [reader.key, *(SeedKeyring(os.urandom(32)) for _ in range(PREPARED))]
    letters = [
        reader.sign(UcanRevoke, RevokeBody(cid=cid), by=key, prev=7)[1]
        for key in keys
        for cid in reader.revoked
    ]
    return itertools.cycle([reader.to_gate("post", one) for one in letters])


def _delegation(reader: Reader, deps: tuple[tuple[int, str], ...]) -> tuple[str, bytes]:
    made = reader.key.delegate(
        Payload(
            iss=reader.key.did,
            aud=SeedKeyring(os.urandom(32)).did,
            sub=None,
            cmd="/",
            pol=Policy([]),
            nonce=os.urandom(12),
            exp=None,
            meta=UNSET,
        )
    )
    return reader.sign(UcanDelegate, DelegateBody(token=token_of(made.raw)), deps=deps)


def _delegations(reader: Reader) -> Iterator[bytes]:
    """Every one is new, and goes both ways: through the gate, and where the log would take it."""
    while True:
        subject, payload = _delegation(reader, ())
        yield reader.to_gate("post", payload)
        yield frame(subject, payload)


def _deps(reader: Reader) -> Iterator[bytes]:
    """Delegations that name records, so that every reader has to fetch them."""
    for first in itertools.count(2):
        named = tuple((first + n, "blake3:" + "0" * 64) for n in range(DEPS))
        subject, payload = _delegation(reader, named)
        yield reader.to_gate("post", payload)
        yield frame(subject, payload)


def _junk_control(reader: Reader) -> Iterator[bytes]:
    for number in itertools.count():
        yield frame(f"ap.{reader.mesh}.ctl.ucan.j{number}", b"junk")


def taken_ids(reader: Reader) -> Iterator[bytes]:
    """Message ids that the owner's next revocation could have, if they could be known."""
    at_ms = 0
    subject = f"ap.{reader.mesh}.ctl.ucan.taken"
    while True:
        at_ms = max(at_ms + 1, time.time_ns() // 1_000_000)
        for cid in reader.revoked:
            op = UcanRevoke(
                v=1,
                mesh=reader.mesh,
                author=reader.owner,
                hlc=(at_ms, 0),
                prev=0,
                deps=(),
                auth=(),
                body=RevokeBody(cid=cid),
            )
            yield frame(subject, b"x", head=header(Nats_Msg_Id=digest(codec.encode(op))))
        if at_ms > time.time_ns() // 1_000_000 + 400:
            yield from itertools.repeat(frame(f"{subject}.beside", b"x"), 16)


FLOODS: Final[dict[str, Flood]] = {
    "pages": _asking("get", {"seq": 1, "batch": 4096}),
    "stated pages": _asking(
        "get", {"seq": 1, "batch": 64, "reads": [f"job.a{n}.b.c.d.e.f.g.*.>" for n in range(512)]}
    ),
    "filters": _asking("get", {"multi_last": [f"x{n}.>" for n in range(512)]}),
    "single reads": _asking("leader", {"seq": 1, "next_by_subj": "x.>"}, {"seq": 1}, b"{", b""),
    "newest": _newest,
    "blobs": _blobs,
    "logins": _logins,
    "refreshes": _refreshes,
    "rolls": _rolls,
    "inboxes": _inboxes,
    "evidence": _evidence,
    "revocations": _revocations,
    "delegations": _delegations,
    "deps": _deps,
    "control": _junk_control,
}


BY_REFRESH_KEY: Final = frozenset({"refreshes"})
"""What it floods over a connection of its refresh key."""
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "reads": ("pages", "stated pages", "filters", "single reads", "newest"),
    "bus": ("blobs", "logins", "refreshes", "rolls", "inboxes"),
    "letters": ("evidence", "revocations", "delegations", "deps", "control"),
    "everything": ("everything",),
}
"""Floods of one sort: what is judged, since a single one may be over before there are numbers."""


def everything(reader: Reader) -> Iterator[bytes]:
    """All of them in turn, and ids taken in advance."""
    own = [flood(reader) for name, flood in FLOODS.items() if name not in BY_REFRESH_KEY]
    sources = [*own, taken_ids(reader)]
    for source in itertools.cycle(sources):
        yield from itertools.islice(source, 4)
