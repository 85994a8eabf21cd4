"""Manifests: what to run, and the job id that follows from it (spec §7.1).

The schema is closed. The job id is the BLAKE3 of the canonical bytes without `ulid`, which is an
alias and never a key. The same manifest is the same job: to run it twice, add a `nonce` input,
which is hashed like every other field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from blake3 import blake3
from msgspec import UNSET, Meta, Struct, UnsetType

from antiphon.core.record import codec
from antiphon.core.record.json_schema import published
from antiphon.core.record.op import Digest, Kind
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_WORDS: Final = 1024
MAX_INPUTS: Final = 1024
MAX_OUTPUTS: Final = 256
MAX_SECRETS: Final = 64
MAX_TIMEOUT_S: Final = 366 * 24 * 3600

ARGUMENTS: Final = "arguments"
"""The name of the input that is a handler's arguments, where a manifest is too small for them."""
SECRET_NAME: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z"
EnvName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\Z", max_length=256)]


class BlobInput(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="blobptr"
):
    """An input by content. A command finds it as the file `name` in its work directory."""

    algo: Literal["blake3"]
    hash: Annotated[Digest, Meta(description="BLAKE3 of the content; the prefix is optional.")]
    size: (
        Annotated[
            int, Meta(ge=0, le=codec.MAX_INTEGER, description="Size of the content in bytes.")
        ]
        | UnsetType
    ) = UNSET
    name: (
        Annotated[
            str,
            Meta(min_length=1, max_length=255, description="Name of the file for the command."),
        ]
        | UnsetType
    ) = UNSET


Origin = Literal["random", "child", "replica", "retry", "plan", "key"]
"""Where a nonce comes from: chance, the job that it is a child, replica or retry of, a plan, or a
key that may be used again."""


class NonceInput(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="kind",
    tag="nonce",
):
    """Makes a new job of an otherwise identical manifest."""

    nonce: Annotated[str, Meta(pattern=r"^[0-9a-f]{16,64}\Z")]
    origin: Annotated[
        Origin,
        Meta(
            description="Where it comes from. A job is remembered for the horizon if somebody may"
            " ask for it again: if it has no nonce but a `key`. Others leave the log earlier."
        ),
    ] = "key"


class ResultInput(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="result"
):
    """The result of a job that was submitted before; the job waits until that one has ended.

    A command finds it as the file `name` in its work directory. For a handler `name` is the place
    of the value among its arguments, such as `/args/0`.
    """

    of: Annotated[
        tuple[Kind, Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]],
        Meta(description="The kind and the id of the other job."),
    ]
    name: Annotated[
        str,
        Meta(min_length=1, max_length=255, description="Name of the file for the command."),
    ]
    output: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=255,
                description="Which of the other job's outputs; if left out, a handler's result.",
            ),
        ]
        | UnsetType
    ) = UNSET


Input = BlobInput | NonceInput | ResultInput


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job's content. Optional fields that are absent are not written."""

    command: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            max_length=MAX_WORDS,
            description="The program and its first arguments. A single item '@kind' names a"
            " registered handler instead.",
        ),
    ]
    args: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_WORDS,
            description="More arguments, appended to the command. If left out, it is hashed as [].",
        ),
    ]
    timeout: Annotated[
        int,
        Meta(
            ge=0,
            le=MAX_TIMEOUT_S,
            description="Whole seconds that one attempt may take; 0: the job sets no limit."
            " ISO-8601 such as PT5M is accepted and hashed as seconds.",
        ),
    ]
    env: (
        Annotated[
            dict[EnvName, str],
            Meta(
                description="Environment variables for the command, in addition to the usual few."
            ),
        ]
        | UnsetType
    ) = UNSET
    cwd: (
        Annotated[
            str,
            Meta(
                min_length=1, max_length=4096, description="Directory that the command starts in."
            ),
        ]
        | UnsetType
    ) = UNSET
    inputs: (
        Annotated[
            tuple[Input, ...],
            Meta(
                max_length=MAX_INPUTS,
                description="Recommended: what the job reads, by content.",
            ),
        ]
        | UnsetType
    ) = UNSET
    outputs: (
        Annotated[
            tuple[Annotated[str, Meta(min_length=1, max_length=1024)], ...],
            Meta(
                max_length=MAX_OUTPUTS,
                description="Files to keep as outputs: globs over the command's work directory.",
            ),
        ]
        | UnsetType
    ) = UNSET
    secrets: (
        Annotated[
            tuple[Annotated[str, Meta(pattern=SECRET_NAME)], ...],
            Meta(
                max_length=MAX_SECRETS,
                description="Names of secrets; the worker provides them to the command as files.",
            ),
        ]
        | UnsetType
    ) = UNSET
    network: (
        Annotated[bool, Meta(description="Whether the command needs the network.")] | UnsetType
    ) = UNSET
    policy_root: (
        Annotated[
            str,
            Meta(
                pattern=r"^sha256:[0-9a-f]{64}\Z",
                description="Recommended: digest of the policy that the job should run under.",
            ),
        ]
        | UnsetType
    ) = UNSET
    ulid: (
        Annotated[
            str,
            Meta(
                pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}\Z",
                description="A name for people; not hashed, and never a key.",
            ),
        ]
        | UnsetType
    ) = UNSET

    @property
    def handler(self) -> str | None:
        """The kind of the registered handler that this names, or None for a command."""
        word = self.command[0]
        return word[1:] if word.startswith("@") else None


def core_bytes(manifest: Manifest) -> bytes:
    """The canonical bytes that are hashed."""
    if manifest.ulid is not UNSET:
        manifest = msgspec.structs.replace(manifest, ulid=UNSET)
    return codec.encode(manifest)


def job_id(manifest: Manifest) -> str:
    """The content id: 64 hex digits."""
    return blake3(core_bytes(manifest)).hexdigest()


def blobs_read(manifest: Manifest) -> tuple[str, ...]:
    """The digests of a job's inputs by content, each once."""
    given = () if isinstance(manifest.inputs, UnsetType) else manifest.inputs
    return tuple(dict.fromkeys(one.hash for one in given if isinstance(one, BlobInput)))


def stored_arguments(manifest: Manifest) -> BlobInput | None:
    """The input that is a handler's arguments; None where they are in the manifest itself."""
    if manifest.handler is None or isinstance(manifest.inputs, UnsetType) or manifest.args:
        return None
    named = (one for one in manifest.inputs if isinstance(one, BlobInput))
    return next((one for one in named if one.name == ARGUMENTS), None)


def results_read(manifest: Manifest) -> tuple[ResultInput, ...]:
    """The results of other jobs that a job reads, in the order of its inputs."""
    if isinstance(manifest.inputs, UnsetType):
        return ()
    return tuple(one for one in manifest.inputs if isinstance(one, ResultInput))


def inputs_of(manifest: Manifest) -> tuple[Input, ...]:
    """What it reads; empty where that is left out."""
    return () if isinstance(manifest.inputs, UnsetType) else manifest.inputs


def with_nonce(manifest: Manifest, nonce: str, origin: Origin) -> Manifest:
    """The same content as a new job."""
    made = NonceInput(nonce=nonce, origin=origin)
    return msgspec.structs.replace(manifest, inputs=(*inputs_of(manifest), made))


def is_asked_again(manifest: Manifest) -> bool:
    """Whether somebody may submit the same job again: nothing in it was made for one time only."""
    given = inputs_of(manifest)
    return all(one.origin == "key" for one in given if isinstance(one, NonceInput))


_DURATION = re.compile(
    r"P(?:(?P<d>\d{1,6})D)?(?:T(?=\d)(?:(?P<h>\d{1,6})H)?(?:(?P<m>\d{1,6})M)?(?:(?P<s>\d{1,9})S)?)?",
    re.ASCII,
)


def seconds(duration: str) -> int:
    """Whole seconds of an ISO-8601 duration in days, hours, minutes and seconds."""
    found = _DURATION.fullmatch(duration)
    if found is None or duration in ("P", "PT"):
        raise Malformed(
            f"{duration!r} is not a duration",
            reason="manifest",
            hint="write whole seconds (30) or ISO-8601 such as PT30S, PT5M, PT1H30M, P1D",
        )
    days, hours, minutes, rest = (int(found[part] or 0) for part in "dhms")
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def author(fields: Mapping[str, object]) -> Manifest:
    """A manifest from what a person wrote: defaults filled in, durations in whole seconds.

    Digests may be written without prefix; the canonical form has it.
    """
    plain = dict(fields)
    plain.setdefault("args", [])
    if plain.get("network") is False:
        del plain["network"]  # false has one form: the field is absent
    if isinstance(plain.get("timeout"), str):
        plain["timeout"] = seconds(str(plain["timeout"]))
    given = plain.get("inputs")
    if isinstance(given, (list, tuple)):
        plain["inputs"] = [_with_prefix(item) for item in given]
    codec.check_profile(plain)
    try:
        return msgspec.convert(plain, Manifest)
    except msgspec.ValidationError as problem:
        raise Malformed(f"the manifest is not valid: {problem}", reason="manifest") from problem


def _with_prefix(item: object) -> object:
    if not isinstance(item, dict) or item.get("kind") != "blobptr":
        return item
    value = item.get("hash")
    if not isinstance(value, str) or value.startswith("blake3:"):
        return item
    return {**item, "hash": f"blake3:{value.lower()}"}


SCHEMA_ID: Final = "urn:antiphon:manifest:1"


def json_schema() -> dict[str, Any]:
    """What a person may write, as JSON Schema 2020-12, for editors and other programs.

    It is generated from the closed types, and wider in the three places where `author` accepts
    more than it hashes. A schema cannot express everything: 30.0 is an integer there and refused
    here, and a duration may be longer than the longest timeout.
    """
    whole = msgspec.json.schema(Manifest)
    parts: dict[str, Any] = whole["$defs"]
    top = parts.pop("Manifest")
    fields = top["properties"]
    top["required"].remove("args")
    fields["args"]["default"] = []
    duration = re.sub(r"\(\?P<\w>", "(?:", _DURATION.pattern).replace(r"\d", "[0-9]")
    timeout = fields["timeout"]
    fields["timeout"] = {
        "description": timeout.pop("description"),
        "anyOf": [timeout, {"type": "string", "pattern": rf"^(?!P$){duration}\Z"}],
    }
    parts["BlobInput"]["properties"]["hash"]["pattern"] = (
        r"^(?:blake3:[0-9a-f]{64}|[0-9a-fA-F]{64})\Z"
    )
    fields["inputs"]["items"].pop("discriminator")  # OpenAPI's word, not JSON Schema's
    return published(SCHEMA_ID, {**top, "$defs": parts})
