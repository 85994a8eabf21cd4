"""UCAN 1.0 delegations: reading, checking, judging and issuing them. Pure, and self-contained.

Nothing here is Antiphon's but the errors: root, commands, arguments, times and revocations all
come from the caller, so that another project can take the folder as it is.

    payload = Payload(iss=owner, aud=node, sub=owner, cmd="/job/claim",
                      pol=Policy([["like", ".kind", "render.*"]]), nonce=nonce, exp=friday)
    delegation = issue(payload, sign)                 # sign: bytes -> 64 bytes
    same = open_envelope(delegation.raw)              # strict; the signature is not looked at
    chain = Chain.of(owner, [same], is_signed=SignatureCache())
    chain.judge(node, "/job/claim", {"kind": "render.frame"}, [wall_s, commit_s], revoked)

One concept per file, each using only those above it:

    dag_cbor    bytes and values      budget      the cost of a judgement
    did         principals            selector    where a statement looks
    cid         names of envelopes    glob        `like`
    command     what may be done      policy      statements
    payload     claims                envelope    claims and a signature, on the wire
    signatures  who signed            chain       from root to invoker
"""

from antiphon.core.ucan.budget import Budget, Exhausted
from antiphon.core.ucan.chain import MAX_LINKS, Chain, Outcome, Revocations, Verdict, check
from antiphon.core.ucan.cid import cid_of, parse_cid
from antiphon.core.ucan.command import TOP, covers, parse_command, segments
from antiphon.core.ucan.did import did_of, public_key_of
from antiphon.core.ucan.envelope import (
    Delegation,
    issue,
    open_envelope,
    seal_envelope,
    to_be_signed,
)
from antiphon.core.ucan.payload import Payload, decode_payload, encode_payload
from antiphon.core.ucan.policy import Policy
from antiphon.core.ucan.selector import UNRESOLVED, Selector
from antiphon.core.ucan.signatures import SignatureCache, is_signed

__all__ = [
    "MAX_LINKS",
    "TOP",
    "UNRESOLVED",
    "Budget",
    "Chain",
    "Delegation",
    "Exhausted",
    "Outcome",
    "Payload",
    "Policy",
    "Revocations",
    "Selector",
    "SignatureCache",
    "Verdict",
    "check",
    "cid_of",
    "covers",
    "decode_payload",
    "did_of",
    "encode_payload",
    "is_signed",
    "issue",
    "open_envelope",
    "parse_cid",
    "parse_command",
    "public_key_of",
    "seal_envelope",
    "segments",
    "to_be_signed",
]
