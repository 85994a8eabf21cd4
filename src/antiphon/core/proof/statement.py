"""Proof of execution: a worker's signed statement about a run, in a standard format.

An in-toto Statement in a DSSE envelope, signed by the worker's key. Its subjects are the outputs.
Its predicate says which job ran under which fence, by whom, with what, from when to when, and how
it was isolated. It names the manifest by its digests; the job's id is one of them.

A completion must have the proof of exactly what it says (`holds`). That shows who vouches for a
result; it does not show that the machine told the truth.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core import manifest
from antiphon.core.bounded_cache import BoundedCache
from antiphon.core.cost.job_cost import Cost
from antiphon.core.cost.usage import Usage
from antiphon.core.proof.output import DsseEnvelope, DsseSignature, Output
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import DIGEST_PREFIX, digest, public_key_of
from antiphon.core.record.json_schema import published
from antiphon.errors import Malformed

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:antiphon:proof-of-execution:v1"
SCHEMA_ID: Final = "urn:antiphon:proof:1"
MAX_PAYLOAD_BYTES: Final = 128 * 1024
OPENED_KEPT: Final = 1024
OPENED_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Limits of the cache of opened proofs, which are read twice: number, and bytes. A worker chooses
how large its proofs are, and every reader of its jobs opens them."""
_WEIGHT: Final = 3
"""Memory of an opened proof as a multiple of its text, as measured."""

Hex64 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Word = Annotated[str, Meta(max_length=255)]
Count = Annotated[int, Meta(ge=0, le=codec.MAX_INTEGER)]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the statement; defaults are not written."""


class Digests(_Part, frozen=True, kw_only=True):
    """The digests of one content: BLAKE3, and SHA-256 for other tools."""

    blake3: Hex64
    sha256: Hex64 | None = None


class Subject(_Part, frozen=True, kw_only=True):
    """An output, by name and content."""

    name: Word
    digest: Digests


class Runner(_Part, frozen=True, kw_only=True):
    """What ran the job."""

    name: Word
    version: Word
    platform: Word
    digest: (
        Annotated[
            Digests,
            Meta(description="Of the executed program, if it is a single file."),
        ]
        | None
    ) = None


class Isolation(_Part, frozen=True, kw_only=True):
    """How the job was really isolated from the rest of the machine."""

    level: Annotated[
        Literal["none", "process", "sandbox"],
        Meta(
            description="none: in the worker's own process. process: in another process only."
            " sandbox: own namespaces, filtered system calls, only declared files visible."
        ),
    ]
    held: Annotated[
        tuple[Word, ...],
        Meta(
            max_length=64,
            description="The individual measures, such as network:none, seccomp, uid:61000.",
        ),
    ] = ()


class Predicate(_Part, frozen=True, kw_only=True):
    """The worker's statement about one run."""

    mesh: Word
    kind: Word
    job: Annotated[Hex64, Meta(description="The job's content id: BLAKE3 of its manifest.")]
    manifest: Digests
    inputs: Annotated[tuple[Subject, ...], Meta(max_length=manifest.MAX_INPUTS)] = ()
    worker: Annotated[Word, Meta(description="The did:key of the signer.")]
    fence: Annotated[Word, Meta(description="The fence of the tenure: the HLC of its claim.")]
    started: Annotated[Word, Meta(description="HLC, as 16 hexadecimal digits.")]
    ended: Annotated[Word, Meta(description="HLC, as 16 hexadecimal digits.")]
    status: Literal["succeeded", "failed"]
    exit: Annotated[int, Meta(ge=-255, le=255)] | None = None
    runner: Runner
    isolation: Isolation
    environment: (
        Annotated[
            Hex64,
            Meta(description="SHA-256 of the job's environment, as canonical JSON."),
        ]
        | None
    ) = None
    policy_root: Word | None = None
    usage: Usage
    cost: (
        Annotated[
            Cost,
            Meta(description="Where the mesh has a tempo policy, or the job a budget."),
        ]
        | None
    ) = None


class Statement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An in-toto Statement, version 1."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: Annotated[tuple[Subject, ...], Meta(min_length=1, max_length=1024)]
    predicate_type: Literal["urn:antiphon:proof-of-execution:v1"] = msgspec.field(
        name="predicateType"
    )
    predicate: Predicate


_decoder = msgspec.json.Decoder(Statement)


def manifest_digests(job_id: str, content: manifest.Manifest) -> Digests:
    """Both digests of a manifest."""
    return Digests(blake3=job_id, sha256=sha256(manifest.core_bytes(content)).hexdigest())


def subjects_of(job_id: str, outputs: Sequence[Output]) -> tuple[Subject, ...]:
    """The outputs as subjects; without outputs, the job itself is the subject."""
    if not outputs:
        return (Subject(name=f"job:{job_id}", digest=Digests(blake3=job_id)),)
    return tuple(
        Subject(
            name=output.name,
            digest=Digests(blake3=output.hash[len(DIGEST_PREFIX) :], sha256=output.sha256),
        )
        for output in outputs
    )


def made_of(predicate: Predicate, outputs: Sequence[Output]) -> Statement:
    """The statement about a run with these outputs."""
    return Statement(
        type=STATEMENT_TYPE,
        subject=subjects_of(predicate.job, outputs),
        predicate_type=PREDICATE_TYPE,
        predicate=predicate,
    )


def statement(predicate: Predicate, outputs: Sequence[Output]) -> bytes:
    """The statement's canonical bytes, to be signed."""
    return codec.encode(made_of(predicate, outputs))


def put_in_envelope(
    payload: bytes, keyid: str, sign: Callable[[str, bytes], bytes]
) -> DsseEnvelope:
    """The envelope around a statement; `sign` uses the worker's key."""
    signature = base64.b64encode(sign(PAYLOAD_TYPE, payload)).decode()
    return DsseEnvelope(
        payload=base64.b64encode(payload).decode(),
        payload_type=PAYLOAD_TYPE,
        signatures=(DsseSignature(keyid=keyid, sig=signature),),
    )


_opened: BoundedCache[str, Statement] = BoundedCache(most=OPENED_KEPT, most_bytes=OPENED_KEPT_BYTES)


def remember(envelope: DsseEnvelope, payload: bytes, said: Statement | None = None) -> None:
    """Keep the statement of a proof that was made just now, if it can be read at all.

    `said` is the statement, where it is at hand: most need not be read for that.
    """
    with suppress(Malformed):
        if said is None or not is_certainly_readable(said.predicate):
            said = _read(payload)
        _opened.put(envelope.payload, said, _WEIGHT * len(envelope.payload))


def forget(envelope: DsseEnvelope) -> None:
    """Have this proof read from its bytes when it is opened next."""
    _opened.drop(envelope.payload)


def is_certainly_readable(said: Predicate) -> bool:
    """Whether every reader accepts it: only these fields can have a value that some refuse."""
    return (
        not said.inputs
        and said.exit is None
        and said.environment is None
        and said.policy_root is None
        and said.cost is None
        and said.usage.reported is None
        and _is_readable(said.runner, said.isolation)
    )


@lru_cache(maxsize=64)
def _is_readable(runner: Runner, isolation: Isolation) -> bool:
    """Both are an executor's, and the same for all of its runs."""
    try:
        msgspec.convert(msgspec.to_builtins(runner), Runner)
        msgspec.convert(msgspec.to_builtins(isolation), Isolation)
    except msgspec.ValidationError:
        return False
    return True


def open_proof(envelope: DsseEnvelope) -> Statement:
    """The statement in an envelope, whoever signed it; `Malformed` if it is not canonical."""
    if envelope.payload_type != PAYLOAD_TYPE:
        raise Malformed("the proof is of another type", reason="proof")
    known = _opened.get(envelope.payload)
    if known is not None:
        return known
    found = _read(_unpacked(envelope.payload))
    _opened.put(envelope.payload, found, _WEIGHT * len(envelope.payload))
    return found


def _read(payload: bytes) -> Statement:
    try:
        found = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Malformed(f"the proof cannot be read: {problem}", reason="proof") from problem
    if codec.encode(found) != payload:
        raise Malformed("the proof is not in canonical form", reason="proof")
    return found


def is_signed_by(envelope: DsseEnvelope, did: str) -> bool:
    """Whether the envelope has exactly one signature, by this key."""
    if len(envelope.signatures) != 1:
        return False
    (signature,) = envelope.signatures
    try:
        raw, payload = _unpacked(signature.sig), _unpacked(envelope.payload)
    except Malformed:
        return False
    return signature.keyid == did and signing.is_signed(did, envelope.payload_type, payload, raw)


def _unpacked(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Malformed("the proof is not base64", reason="proof") from problem
    if len(raw) > MAX_PAYLOAD_BYTES or base64.b64encode(raw).decode() != text:
        raise Malformed("the proof is not canonical base64", reason="proof")
    return raw


def trailers(envelope: DsseEnvelope) -> list[tuple[str, str]]:
    """The result's trailer lines (P9): job, proof, worker and program."""
    said = open_proof(envelope).predicate
    lines = [
        ("Job-Id", f"blake3:{said.job}"),
        ("Proof-Of-Execution", digest(codec.encode(envelope))),
        ("Worker-Id", f"ed25519:{public_key_of(said.worker).hex()}"),
    ]
    if said.runner.digest is not None:
        lines.append(("Attest-Program", f"blake3:{said.runner.digest.blake3}"))
    signature = _unpacked(envelope.signatures[0].sig).hex()
    return [*lines, ("Attest-Sig", f"ed25519:{signature}")]


def to_json(envelope: DsseEnvelope) -> dict[str, Any]:
    """The envelope as DSSE tools read it."""
    built: dict[str, Any] = msgspec.to_builtins(envelope)
    return built


# --- the published schema ---------------------------------------------------------------------

_BASE64: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"


def json_schema() -> dict[str, Any]:
    """The envelope and the statement inside it, as JSON Schema 2020-12, for other programs.

    It is generated from the closed types. A schema cannot express that the payload is canonical
    or that the signature is valid.
    """
    _, parts = msgspec.json.schema_components([DsseEnvelope, Statement])
    top, signature = parts.pop("DsseEnvelope"), parts["DsseSignature"]["properties"]
    top["title"] = "Proof of execution"
    fields = top["properties"]
    fields["payload"] |= {
        "pattern": rf"^{_BASE64}\Z",
        "contentEncoding": "base64",
        "contentMediaType": PAYLOAD_TYPE,
        "contentSchema": {"$ref": "#/$defs/Statement"},
    }
    fields["payloadType"] = {"enum": [PAYLOAD_TYPE]}
    fields["signatures"]["maxItems"] = 1
    signature["keyid"] |= {"pattern": r"^did:key:z[1-9A-HJ-NP-Za-km-z]+\Z"}
    signature["sig"] |= {"pattern": r"^[A-Za-z0-9+/]{86}==\Z"}
    for part in parts.values():
        for name, field in part["properties"].items():
            part["properties"][name] = _written(field)
    return published(SCHEMA_ID, {**top, "$defs": parts})


def _written(field: dict[str, Any]) -> dict[str, Any]:
    """A field as it is written in a statement: defaults are left out."""
    match field:
        case {"anyOf": [kept, {"type": "null"}]}:
            return dict(kept)
        case {"default": [], **rest}:
            return {**rest, "minItems": 1}
        case {"default": {}, **rest}:
            return {**rest, "minProperties": 1}
        case _:
            return field
