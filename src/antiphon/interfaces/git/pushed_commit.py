"""A commit that was pushed as a job: what its objects say, and who signed it.

The program that Git runs for a push sends the bytes of three objects. Everything about them is
checked here again, from the commit's id down, so it need not be trusted.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from antiphon.errors import Malformed
from antiphon.interfaces.git.job_refs import JOBS, MANIFEST
from antiphon.interfaces.git.objects import object_id
from antiphon.sdk.git.pushed_jobs import PushedJob, pushed_job
from antiphon.sdk.git.ssh_signature import signer_of

NEW: Final = f"{JOBS}new/"
_REF: Final = re.compile(NEW + r"([a-z0-9._-]+)(?:/.*)?", re.ASCII)
_SIGNATURES: Final = {"sha1": b"gpgsig", "sha256": b"gpgsig-sha256"}
_PLAIN_FILES: Final = (b"100644", b"100755")
_TRAILER: Final = re.compile(r"^(Kind|Mesh): *(\S+)[ \t]*$", re.MULTILINE | re.ASCII)
_HOW_TO_SIGN: Final = (
    "git config gpg.format ssh; git config user.signingKey ~/.ssh/id_ed25519.pub;"
    " git commit --amend --no-edit -S"
)


class Pushed(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a push wants to be a job, as bytes."""

    ref: str
    oid: str
    commit: bytes
    tree: bytes
    job: bytes
    """The file `job.yaml`; empty if the commit has none."""


def read_pushed(pushed: Pushed, algorithm: str, mesh: str) -> PushedJob:
    """The job in a pushed commit, for a mesh; `Malformed` says what to do."""
    named = _REF.fullmatch(pushed.ref)
    if named is None:
        raise Malformed(
            f"{pushed.ref} is written by the bridge alone",
            reason="ref",
            hint=f"push a signed commit with a {MANIFEST} to {NEW}KIND",
        )
    if object_id(algorithm, "commit", pushed.commit) != pushed.oid:
        raise Malformed("the commit is not the one that was pushed", reason="object")
    tree, signature, signed = _split(pushed.commit, _SIGNATURES[algorithm])
    if object_id(algorithm, "tree", pushed.tree) != tree:
        raise Malformed("the tree is not the commit's", reason="object")
    if _entry(pushed.tree, len(pushed.oid) // 2) != object_id(algorithm, "blob", pushed.job):
        raise Malformed(
            f"the commit {pushed.oid[:8]} has no file {MANIFEST}",
            reason="no_manifest",
            hint=f"git add {MANIFEST}, with what to run: command, args, timeout",
        )
    if not signature:
        raise Malformed(
            f"the commit {pushed.oid[:8]} is not signed", reason="unsigned", hint=_HOW_TO_SIGN
        )
    signer = signer_of(signature, signed)
    _check_intent(signed, named[1], mesh)
    return pushed_job(
        named[1], pushed.job, signer=signer, commit_id=pushed.oid, commit=pushed.commit
    )


def _check_intent(signed: bytes, kind: str, mesh: str) -> None:
    """The signer has to say that the commit is a job, and of which kind.

    Otherwise whoever finds a signed commit that happens to have such a file could push it.
    """
    message = signed.partition(b"\n\n")[2].decode(errors="replace").rstrip()
    last = message.rpartition("\n\n")[2]
    said: dict[str, str] = {found[1]: found[2] for found in _TRAILER.finditer(last)}
    if said.get("Kind") != kind:
        known = f"says Kind: {said['Kind']}" if "Kind" in said else "does not say its kind"
        raise Malformed(
            f"the commit's message {known}, and it was pushed as {kind}",
            reason="kind",
            hint=f"git commit --amend -S --trailer 'Kind: {kind}'",
        )
    if said.get("Mesh", mesh) != mesh:
        raise Malformed(
            f"the commit's message says Mesh: {said['Mesh'][:40]}, and this is {mesh}",
            reason="mesh",
        )


def _split(commit: bytes, header: bytes) -> tuple[str, str, bytes]:
    """A commit's tree, its signature (empty if it has none), and what the signature covers."""
    head, gap, message = commit.partition(b"\n\n")
    lines = head.split(b"\n")
    kept: list[bytes] = []
    signature: list[bytes] = []
    is_inside = False
    for line in lines:
        name, _, rest = line.partition(b" ")
        if is_inside and line.startswith(b" "):
            signature.append(line[1:])
            continue
        is_inside = name == header
        if is_inside and not signature:
            signature.append(rest)
        elif name.startswith(b"gpgsig"):
            raise Malformed("the commit has more than one signature", reason="signature")
        else:
            kept.append(line)
    first = lines[0].partition(b" ")
    if first[0] != b"tree" or not gap:
        raise Malformed("this is not a commit", reason="object")
    text = b"\n".join(signature).decode("ascii", "replace")
    return first[2].decode("ascii", "replace"), text, b"\n".join(kept) + gap + message


def _entry(tree: bytes, id_bytes: int) -> str:
    """The id of the manifest in a tree; empty if there is no such plain file."""
    at = 0
    while at < len(tree):
        end = tree.find(b"\0", at)
        if end < 0:
            break
        mode, _, name = tree[at:end].partition(b" ")
        at = end + 1 + id_bytes
        if name == MANIFEST.encode() and mode in _PLAIN_FILES:
            return tree[end + 1 : at].hex()
    return ""
