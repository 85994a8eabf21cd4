"""A record read without the core: plain JSON, plain dictionaries, nothing decided.

The laws must not lean on the code that they watch. So they take type, author, time, predecessor
and subject from the bytes themselves, with a few lines of their own; and from a delegation, who
gave what to whom and when. Whether anybody signed it is known from those who sign.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import libipld
import msgspec
from blake3 import blake3
from msgspec import Struct

from antiphon.ports import Record

Key = tuple[str, str]
"""A job: (kind, job id)."""

KEY: Final = "did:key:"
CID_HEAD: Final = b"\x01\x71\x12\x20"
"""Of the CIDs of delegations: version 1, DAG-CBOR, SHA-256, 32 bytes."""

NODE: Final = 32
"""Bytes of a hash in a tree."""
_RANKS: Final = {"high": "0", "normal": "1", "low": "2"}
_PLACES: Final = ("wait", *_RANKS.values(), "job")
_decode = msgspec.json.Decoder().decode
NO_HOMES: Final[Mapping[str, Any]] = {}


class PlainRecord(Struct, frozen=True):
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
    auth: tuple[str, ...] = ()
    """The delegations that it names."""
    mesh: str = ""
    deps: tuple[int, ...] = ()
    """The places of the records that it names."""

    @property
    def op_id(self) -> str:
        """The op's id."""
        return "blake3:" + blake3(self.op_bytes).hexdigest()

    @property
    def fence(self) -> str:
        """The fence that the op carries; empty if it carries none."""
        return str(self.body.get("fence") or "")

    @property
    def own_fence(self) -> str:
        """The fence that a claim begins: its own time, packed."""
        return f"{(self.wall_ms << 16) | self.logical:016x}"


def stamp_of(shown: str) -> tuple[int, int]:
    """The time of an op that is shown rather than committed."""
    wall_ms, logical = _decode(shown.partition("\n")[0])["hlc"]
    return int(wall_ms), int(logical)


def signed_part(payload: bytes) -> bytes:
    """What the author of a record must have signed: its op, or the root of several.

    The tree is walked from its top, unlike in the core; a path that does not fit gives nothing
    that anybody signed.
    """
    op_bytes, _, block_bytes = payload.partition(b"\n")
    try:
        block = _decode(block_bytes) if block_bytes else {}
        if not block.get("of"):
            return op_bytes
        leaf = blake3(b"\x00" + blake3(op_bytes).digest()).digest()
        path = base64.b64decode(block.get("path", ""), validate=True)
        root = _root(block.get("at", 0), block["of"], path, leaf)
        mesh = _decode(op_bytes)["mesh"]
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError):
        return b""
    return f'{{"mesh":"{mesh}","root":"{root.hex()}","size":{block["of"]}}}'.encode()


def _root(at: int, of: int, path: bytes, leaf: bytes) -> bytes:
    if of == 1:
        if path:
            raise ValueError("the path is longer than the tree is deep")
        return leaf
    left = 1 << (of - 1).bit_length() - 1
    rest, beside = path[:-NODE], path[-NODE:]
    if at < left:
        return blake3(b"\x01" + _root(at, left, rest, leaf) + beside).digest()
    return blake3(b"\x01" + beside + _root(at - left, of - left, rest, leaf)).digest()


# --- results --------------------------------------------------------------------------------------


def content_of(output: dict[str, Any]) -> tuple[str, int, str]:
    """The digest, the size and the SHA-256 of an output, as a text or stored."""
    if "stored" in output:
        stored = output["stored"]
        return stored["hash"], stored["size"], stored.get("sha256", "")
    raw = output["text"].encode()
    return "blake3:" + blake3(raw).hexdigest(), len(raw), hashlib.sha256(raw).hexdigest()


def stated(mesh: str, author: str, body: dict[str, Any]) -> bytes:
    """What the author of a result must have signed as its proof of execution."""
    proof = {name: value for name, value in body["proof"].items() if name != "sig"}
    subjects = []
    for output in body.get("outputs", ()):
        ours, _, theirs = content_of(output)
        digests = {"blake3": ours.removeprefix("blake3:"), **({"sha256": theirs} if theirs else {})}
        subjects.append({"name": output["name"], "digest": digests})
    said = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "urn:antiphon:proof-of-execution:v1",
        "subject": subjects or [{"name": f"job:{body['job']}", "digest": {"blake3": body["job"]}}],
        "predicate": {
            "isolation": {"level": "none"},
            **proof,
            **{name: body[name] for name in ("kind", "job", "fence", "status")},
            **{name: body[name] for name in ("exit", "calls") if name in body},
            "started": body["fence"],
            "mesh": mesh,
            "worker": author,
        },
    }
    return _canonical(said)


def answered(mesh: str, author: str, body: dict[str, Any]) -> bytes:
    """What whoever answered a question must have signed."""
    (output,) = body["outputs"]
    ours, _, theirs = content_of(output)
    said = {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "urn:antiphon:answer:v1",
        "subject": [
            {
                "name": output["name"],
                "digest": {"blake3": ours.removeprefix("blake3:"), "sha256": theirs},
            }
        ],
        "predicate": {
            "mesh": mesh,
            "kind": body["kind"],
            "job": body["job"],
            "text": body["answered"]["text"],
            "answer": output["text"],
            "key": author,
            "fence": body["fence"],
            "answered": body["answered"]["at"],
        },
    }
    return _canonical(said)


# --- delegations ----------------------------------------------------------------------------------


class Claims(Struct, frozen=True):
    """What a delegation says, whether or not anybody signed it."""

    cid: str
    raw: bytes
    issuer: str
    audience: str
    subject: str | None
    command: str
    policy: list[Any]
    begins_s: int | None
    ends_s: int | None
    mesh: str
    """The only mesh that it is meant for; empty if it does not say."""
    audits: bool
    """Whether model calls under it are audited."""


@lru_cache(maxsize=4096)
def read_claims(token: str) -> Claims:
    """The claims inside a token; what is no delegation raises one of many errors."""
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    _, signed = libipld.decode_dag_cbor(raw)
    (payload,) = (value for name, value in signed.items() if name.startswith("ucan/dlg@"))
    name = CID_HEAD + hashlib.sha256(raw).digest()
    return Claims(
        cid="b" + base64.b32encode(name).decode().lower().rstrip("="),
        raw=raw,
        issuer=payload["iss"],
        audience=payload["aud"],
        subject=payload.get("sub"),
        command=payload["cmd"],
        policy=payload["pol"],
        begins_s=payload.get("nbf"),
        ends_s=payload["exp"],
        mesh=payload.get("meta", {}).get("mesh", ""),
        audits=payload.get("meta", {}).get("audit_inference") is True,
    )


Homes = Mapping[str, Callable[[str, str, dict[str, Any]], str]]
"""By the first word of an op's type: where such ops belong, for families that are guests here."""


def read(mesh: str, record: Record, homes: Homes = NO_HOMES) -> PlainRecord | None:
    """The fact in a record, or None if there is none to be read."""
    op_bytes, _, _ = record.payload.partition(b"\n")
    try:
        op = _decode(op_bytes)
        wall_ms, logical = op["hlc"]
        return PlainRecord(
            type=op["type"],
            author=op["author"],
            wall_ms=int(wall_ms),
            logical=int(logical),
            prev=int(op["prev"]),
            body=op["body"],
            op_bytes=op_bytes,
            home=homes.get(op["type"].partition(".")[0], _home)(mesh, op["type"], op["body"]),
            auth=tuple(op.get("auth", ())),
            mesh=op.get("mesh", ""),
            deps=tuple(int(seq) for seq, _ in op.get("deps", ())),
        )
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError, AttributeError):
        return None


def key_of(record: Record) -> Key | None:
    """The job whose lane a record lies in, by its subject; None outside the lanes."""
    parts = record.subject.split(".")
    if len(parts) < 6 or parts[2] != "jobs" or parts[3] not in _PLACES:
        return None
    return ".".join(parts[4:-1]), parts[-1]


def _home(mesh: str, kind_of_op: str, body: dict[str, Any]) -> str:
    family, _, what = kind_of_op.partition(".")
    root = f"ap.{mesh}"
    if kind_of_op == "mesh.seal":
        return f"{root}.seal"
    if family == "mesh":
        about = {"route": "kind", "evidence": "node", "readmit": "node"}.get(what)
        return f"{root}.ctl.{what}" + (f".{body[about].removeprefix(KEY)}" if about else "")
    if family == "ucan":
        place = f"ucan.{read_claims(body['token']).cid}" if what == "delegate" else "revoke."
        return f"{root}.ctl.{place}{body.get('cid', '')}"
    if family == "plan":
        return f"{root}.plan.{body['kind']}.{body['name']}"
    if what == "schedule":
        waits = any(
            name in body for name in ("after", "not_before", "concurrency", "replicas", "question")
        ) or any(one["kind"] == "result" for one in body["manifest"].get("inputs", []))
        where = "wait" if waits else _RANKS[body.get("priority", "normal")]
        return f"{root}.jobs.{where}.{body['kind']}.{_job_id(body['manifest'])}"
    if what == "offer":
        return f"{root}.jobs.{_RANKS[body.get('priority', 'normal')]}.{body['kind']}.{body['job']}"
    return f"{root}.jobs.job.{body['kind']}.{body['job']}"


def _job_id(manifest: dict[str, Any]) -> str:
    core = {name: value for name, value in manifest.items() if name != "ulid"}
    return blake3(_canonical(core)).hexdigest()


def _canonical(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()
