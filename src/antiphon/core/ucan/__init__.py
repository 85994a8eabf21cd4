"""UCAN 1.0 delegations: reading, checking, judging and issuing them. Pure, and self-contained.

Apart from the errors nothing here depends on Antiphon: root, commands, arguments, times and
revocations come from the caller, so another project can use the folder as it is.

    payload = Payload(iss=owner, aud=node, sub=owner, cmd="/job/claim",
                      pol=Policy([["like", ".kind", "render.*"]]), nonce=nonce, exp=friday)
    delegation = issue(payload, sign)                 # sign: bytes -> 64 bytes
    same = open_envelope(delegation.raw)              # strict; does not check the signature
    chain = Chain.of(owner, [same], is_signed=SignatureCache())
    chain.judge(node, "/job/claim", {"kind": "render.frame"}, [wall_s, commit_s], revoked)

One concept per file, each using only those above it:

    dag_cbor    bytes and values           budget      the cost of a judgement
    did         principals                 selector    where a statement looks
    command     what may be done           glob        `like`
    policy      statements                 payload     claims
    envelope    claims, signature, name    signatures  who signed
    chain       from root to invoker
"""

from antiphon.core.ucan.chain import MAX_LINKS, Chain, ChainVerdict, Revocations
from antiphon.core.ucan.command import TOP, covers
from antiphon.core.ucan.envelope import Delegation, issue, open_envelope, seal_envelope
from antiphon.core.ucan.payload import Payload
from antiphon.core.ucan.policy import Policy
from antiphon.core.ucan.selector import Selector
from antiphon.core.ucan.signatures import SignatureCache

__all__ = [
    "MAX_LINKS",
    "TOP",
    "Chain",
    "ChainVerdict",
    "Delegation",
    "Payload",
    "Policy",
    "Revocations",
    "Selector",
    "SignatureCache",
    "covers",
    "issue",
    "open_envelope",
    "seal_envelope",
]
