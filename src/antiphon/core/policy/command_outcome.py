"""Decisions about running a command: its inputs, its network, its failure, its outputs.

The code that runs the command asks here and carries out the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, Struct

from antiphon.core.authority.control import Control
from antiphon.core.authority.grant_terms import NETWORK
from antiphon.core.families.jobs.ops import Failure
from antiphon.core.manifest import BlobInput, Manifest
from antiphon.core.record import codec

STREAMS: Final = ("stdout", "stderr")
"""Outputs that every command has; no file can have these names."""
WILDCARDS: Final = frozenset("*?[")
LAST_WORDS: Final = 600
"""How many of the last characters of standard error a failure's message includes."""

RECORD_BYTES: Final = codec.MAX_OP_BYTES - 24 * 1024
"""Bytes of a completion's record that outputs and proof may use."""
INPUTS_BYTES: Final = 32 * 1024
_LISTED: Final = 280
"""Bytes of an output in a completion besides its name: two digests, a size, a type."""
_ANY_TIME: Final = 2**63


class CommandInput(Struct, frozen=True):
    """A file that a command reads."""

    name: str
    hash: str
    size: int | None


def inputs_of(content: Manifest) -> tuple[CommandInput, ...]:
    """A manifest's input files; one without a name gets its index as name."""
    given = () if content.inputs is UNSET else content.inputs
    return tuple(
        CommandInput(
            str(one.name) if one.name is not UNSET else f"input-{number}",
            one.hash,
            None if one.size is UNSET else int(one.size),
        )
        for number, one in enumerate(given, start=1)
        if isinstance(one, BlobInput)
    )


def are_listable(inputs: Sequence[CommandInput]) -> bool:
    """Whether a proof has room to list them; otherwise the job's id stands for them."""
    return sum(len(codec.encode(one.name)) + 120 for one in inputs) <= INPUTS_BYTES


# --- the network ------------------------------------------------------------------------------


def network_refusal(control: Control, auth: Sequence[str], *, node_allows: bool) -> str:
    """Why a command that needs the network does not get it; empty if it does.

    The node must be started with --network, and every delegation under which the job was claimed
    must allow it (docs/decisions/0013). The owner needs no delegation, and an open mesh has none.
    """
    if not node_allows:
        return "this node was not started with --network"
    if control.rules.authority == "open":
        return ""
    for cid in auth:
        link = control.grants.find(cid, before=_ANY_TIME)
        meta = link.payload.meta if link is not None else UNSET
        if not isinstance(meta, dict) or meta.get(NETWORK) is not True:
            return f"the delegation {cid[-8:]}, under which it was claimed, does not allow it"
    return ""


# --- how it ended -----------------------------------------------------------------------------


def failure_of(reason: str, exit_code: int | None, stderr: bytes) -> Failure | None:
    """The failure of a run, with a name that retry rules can match; None if it succeeded.

    `stderr` is the end of its standard error.
    """
    match reason:
        case "exited" if exit_code == 0:
            return None
        case "exited" if exit_code is not None and exit_code < 0:
            name, message = f"signal:{-exit_code}", f"ended by signal {-exit_code}"
        case "exited":
            name, message = f"exit:{exit_code}", f"exited with {exit_code}"
        case _:
            name, message = reason, _LIMITS.get(reason, reason)
    words = last_words(stderr)
    return Failure(name=name, message=f"{message}: {words}" if words else message)


_LIMITS: Final = {
    "timeout": "took longer than its timeout",
    "killed": "was killed from outside",
    "output": "wrote more to standard output or error than allowed",
    "memory": "used more memory than allowed",
    "cpu": "used more processor time than allowed",
    "disk": "filled its work directory",
}


def last_words(stderr: bytes) -> str:
    """The last lines of standard error, shortened to fit into a message."""
    text = stderr.decode("utf-8", "replace").rstrip()
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    said = ""
    for line in reversed(lines):
        if said and len(line) + len(said) > LAST_WORDS:
            break
        said = f"{line}\n{said}" if said else line
    return said[-LAST_WORDS:]


# --- what is kept -----------------------------------------------------------------------------


def missing_outputs(globs: Sequence[str], names: Sequence[str]) -> list[str]:
    """Outputs that were named without wildcards and do not exist."""
    there = frozenset(names)
    return [glob for glob in globs if WILDCARDS.isdisjoint(glob) and glob not in there]


def room_for_text(names: Sequence[str], inputs: Sequence[CommandInput]) -> int:
    """Bytes left in a record for outputs as text; -1 if not even their names fit."""
    words = sum(len(codec.encode(name)) for name in names)
    read = sum(len(codec.encode(one.name)) + 120 for one in inputs) if are_listable(inputs) else 0
    left = RECORD_BYTES - words - len(names) * _LISTED - read
    return left if left >= 0 else -1


def text_bytes(text: str) -> int:
    """Bytes of a text in a record, escapes included."""
    return len(codec.encode(text))
