"""The envelope that all ops share, and the field types of their bodies (spec §4.1).

An op class declares its type (the tag), the command that its author must hold, its branch of the
log, the first protocol that has it, and its words. What it does is in `antiphon.core.families`.

A field at its default is not written: no deps, no delegations. `codec.decode` is strict, so each op
has exactly one encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct

from antiphon.core.clock.hlc import MAX_LOGICAL, MAX_WALL
from antiphon.core.record import subjects
from antiphon.core.record.branches import Branch
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.record.ids import AGENT_PATTERN, mesh_id

VERSION: Final = 1
MAX_AUTH: Final = 16
MAX_DEPS: Final = 64

WallMs = Annotated[int, Meta(ge=0, le=MAX_WALL)]
Logical = Annotated[int, Meta(ge=0, le=MAX_LOGICAL)]
Seq = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
Digest = Annotated[str, Meta(pattern=r"^blake3:[0-9a-f]{64}\Z")]
Did = Annotated[str, Meta(pattern=r"^did:key:z6Mk[1-9A-HJ-NP-Za-km-z]{44}\Z")]
"""The form of an Ed25519 did:key; whether the key is usable is checked with its signature."""
AgentName = Annotated[str, Meta(pattern=AGENT_PATTERN)]
"""One agent of a node; a node that runs several gives each a name."""
Kind = Annotated[
    str,
    Meta(
        pattern=r"^(?=[a-z])[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
        r"(?:\.[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?){0,7}\Z",
        max_length=subjects.MAX_KIND_LENGTH,
    ),
]
Text = Annotated[str, Meta(max_length=4096)]
Label = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_.=/-]{0,127}\Z")]


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What all bodies share: no unknown fields, and defaults are not written."""


class Op(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
    gc=False,
):
    """The envelope. The BLAKE3 digest of its bytes is the op's id."""

    v: Literal[1]
    mesh: Annotated[str, Meta(pattern=r"^([a-z2-7]{16})?\Z")]
    author: Annotated[str, Meta(min_length=1, max_length=64)]
    hlc: tuple[WallMs, Logical]
    prev: Seq
    """The last sequence that the author saw on this op's subject; 0 = none."""
    deps: Annotated[tuple[tuple[Seq, Digest], ...], Meta(max_length=MAX_DEPS)] = ()
    auth: Annotated[
        tuple[Annotated[str, Meta(max_length=128)], ...], Meta(max_length=MAX_AUTH)
    ] = ()

    COMMAND: ClassVar[str] = ""
    """The command that its author must hold; empty if the family alone decides who may."""
    BRANCH: ClassVar[Branch]
    """Its branch of the log: the subjects, and who reads and writes them."""
    SINCE: ClassVar[int] = 1
    """The first protocol that has it."""
    CREATES_MESH: ClassVar[bool] = False
    """Whether it creates a mesh: then its `mesh` is empty, since its digest is the mesh's id."""

    if TYPE_CHECKING:
        body: Any
        """The op's content; each op class has its own type."""

    @classmethod
    def type_name(cls) -> str:
        """Its type as written in its bytes, such as `job.claim`."""
        return str(cls.__struct_config__.tag)

    @classmethod
    def command_of(cls, _body: Any) -> str:
        """The command that the author of such an op with this body must hold."""
        return cls.COMMAND

    def subject(self, mesh: str) -> str:
        """The only subject on which it is accepted."""
        raise NotImplementedError

    def words(self) -> str:
        """What it did, as the end of a sentence that begins with its author."""
        return f"wrote {self.type_name()}"

    def error_text(self) -> str:
        """What it says went wrong: a replica finds its lane by these words. Most say nothing."""
        return ""


def subject_of(op: Op, op_bytes: bytes = b"") -> str:
    """The subject of this op. Only genesis needs its bytes: they determine the mesh's id."""
    return op.subject(op.mesh or mesh_id(op_bytes))
