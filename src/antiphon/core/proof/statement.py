"""Proof of execution: a worker's signed statement about a run, in a standard format.

An in-toto Statement in a DSSE envelope, signed by the worker's key. Its subjects are the outputs.
Its predicate says which job ran under which fence, by whom, with what, from when to when, and how
it was isolated. The job's id is the digest of its manifest.

On the log a proof is short (`Proof`): the signature, and what the worker says of the run beside its
completion. The statement is put together from the two, always in the same way, and the signature is
over its bytes. So there is no statement about another job, result or worker. A proof shows who
vouches for a result; it does not show that the machine told the truth.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core import manifest
from antiphon.core.cost.job_cost import Cost
from antiphon.core.cost.usage import Usage
from antiphon.core.proof.output import Output, Stored
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import DIGEST_PREFIX, digest, public_key_of
from antiphon.core.record.json_schema import published
from antiphon.decoding import UNREADABLE
from antiphon.errors import Malformed

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:antiphon:proof-of-execution:v1"
SCHEMA_ID: Final = "urn:antiphon:proof:1"
Hex64 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Word = Annotated[str, Meta(max_length=255)]
Stamp = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
UNSIGNED: Final = bytes(64)
"""In place of a signature that is still to be made."""
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


IN_PROCESS: Final = Isolation(level="none")


class _Account(_Part, frozen=True, kw_only=True):
    """What only the worker can say of a run."""

    ended: Annotated[Stamp, Meta(description="HLC, as 16 hexadecimal digits.")]
    runner: Runner
    inputs: Annotated[tuple[Subject, ...], Meta(max_length=manifest.MAX_INPUTS)] = ()
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


class Proof(_Account, frozen=True, kw_only=True):
    """The proof as a completion carries it: all that does not follow from the completion."""

    sig: Annotated[bytes, Meta(min_length=64, max_length=64)]
    """Over the statement; 64 bytes, in base64."""
    isolation: Isolation = IN_PROCESS


class Predicate(_Account, frozen=True, kw_only=True):
    """The worker's statement about one run."""

    mesh: Word
    kind: Word
    job: Annotated[Hex64, Meta(description="The job's content id: BLAKE3 of its manifest.")]
    worker: Annotated[Word, Meta(description="The did:key of the signer.")]
    fence: Annotated[Word, Meta(description="The fence of the tenure: the HLC of its claim.")]
    started: Annotated[Word, Meta(description="HLC, as 16 hexadecimal digits.")]
    status: Literal["succeeded", "failed"]
    exit: Annotated[int, Meta(ge=-255, le=255)] | None = None
    calls: Annotated[Count, Meta(description="Model calls, where these are audited.")] | None = None
    isolation: Isolation


class Statement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An in-toto Statement, version 1."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: Annotated[tuple[Subject, ...], Meta(min_length=1, max_length=1024)]
    predicate_type: Literal["urn:antiphon:proof-of-execution:v1"] = msgspec.field(
        name="predicateType"
    )
    predicate: Predicate


class DsseSignature(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signature of a DSSE envelope."""

    keyid: Annotated[str, Meta(max_length=128)]
    sig: Annotated[str, Meta(max_length=128)]


class DsseEnvelope(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A DSSE envelope, as in its specification."""

    payload: str
    payload_type: Annotated[str, Meta(max_length=255)] = msgspec.field(name="payloadType")
    signatures: Annotated[tuple[DsseSignature, ...], Meta(min_length=1, max_length=4)]


_decoder = msgspec.json.Decoder(Statement)


def subjects_of(job_id: str, outputs: Sequence[Output]) -> tuple[Subject, ...]:
    """The outputs as subjects; without outputs, the job itself is the subject."""
    if not outputs:
        return (Subject(name=f"job:{job_id}", digest=Digests(blake3=job_id)),)
    return tuple(_subject(one.name, one.content) for one in outputs)


def _subject(name: str, content: Stored) -> Subject:
    ours = content.hash[len(DIGEST_PREFIX) :]
    return Subject(name=name, digest=Digests(blake3=ours, sha256=content.sha256))


def made_of(predicate: Predicate, outputs: Sequence[Output]) -> Statement:
    """The statement about a run with these outputs."""
    return Statement(
        type=STATEMENT_TYPE,
        subject=subjects_of(predicate.job, outputs),
        predicate_type=PREDICATE_TYPE,
        predicate=predicate,
    )


def is_signed_by(said: Statement, did: str, signature: bytes) -> bool:
    """Whether this key signed the statement."""
    return signing.is_signed(did, PAYLOAD_TYPE, codec.encode(said), signature)


def in_envelope(said: Statement, signature: bytes) -> DsseEnvelope:
    """The envelope around a signed statement, for other tools."""
    return DsseEnvelope(
        payload=base64.b64encode(codec.encode(said)).decode(),
        payload_type=PAYLOAD_TYPE,
        signatures=(
            DsseSignature(keyid=said.predicate.worker, sig=base64.b64encode(signature).decode()),
        ),
    )


def open_envelope(envelope: DsseEnvelope) -> Statement:
    """The statement in an envelope, whoever signed it; `Malformed` if it is not canonical."""
    if envelope.payload_type != PAYLOAD_TYPE:
        raise Malformed("the proof is of another type", reason="proof")
    payload = _unpacked(envelope.payload)
    try:
        found = _decoder.decode(payload)
    except UNREADABLE as problem:
        raise Malformed(f"the proof cannot be read: {problem}", reason="proof") from problem
    if codec.encode(found) != payload:
        raise Malformed("the proof is not in canonical form", reason="proof")
    return found


def _unpacked(text: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as problem:
        raise Malformed("the proof is not base64", reason="proof") from problem
    if base64.b64encode(raw).decode() != text:
        raise Malformed("the proof is not canonical base64", reason="proof")
    return raw


def trailers(envelope: DsseEnvelope) -> list[tuple[str, str]]:
    """The result's trailer lines (P9): job, proof, worker and program."""
    said = open_envelope(envelope).predicate
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
