"""People with fixed keys, and delegations made with them, honest or not."""

import hashlib
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import settings
from msgspec import UNSET, structs
from nacl import bindings

from antiphon.core.ucan import Payload, Policy, issue, seal_envelope
from antiphon.core.ucan.budget import Budget, Exhausted
from antiphon.core.ucan.did import did_of
from antiphon.core.ucan.envelope import to_be_signed
from tests.examples import examples

BRISK = settings(max_examples=examples(150))
NOW = 1_763_000_000
DAY = 86_400


@dataclass(frozen=True, slots=True)
class Principal:
    """A key that is the same in every run."""

    name: str
    did: str = field(init=False)
    secret: bytes = field(init=False, repr=False)

    def __post_init__(self):
        seed = hashlib.sha256(b"ucan test key " + self.name.encode()).digest()
        public, secret = bindings.crypto_sign_seed_keypair(seed)
        object.__setattr__(self, "did", did_of(public))
        object.__setattr__(self, "secret", secret)

    def sign(self, message):
        return bindings.crypto_sign(message, self.secret)[:64]


ALICE, BOB, CAROL, DAN, ERIN, MALLORY = (
    Principal(name) for name in ("alice", "bob", "carol", "dan", "erin", "mallory")
)
EVERYONE = {who.did: who for who in (ALICE, BOB, CAROL, DAN, ERIN, MALLORY)}


def claims(iss, aud, **changes):
    """What `iss` says to `aud`: by default everything under /job of Alice's, for a day."""
    plain = {
        "sub": ALICE.did,
        "cmd": "/job",
        "pol": [],
        "nonce": b"twelve bytes",
        "exp": NOW + DAY,
        "nbf": UNSET,
        "meta": UNSET,
    } | changes
    pol = Policy(plain.pop("pol"))
    return Payload(iss=iss.did, aud=aud.did, pol=pol, **plain)


def holds(policy, arguments):
    """Whether a policy holds for these arguments within the budget of one invocation."""
    try:
        return policy.judge(arguments, Budget())
    except Exhausted:
        return False


def delegate(iss, aud, **changes):
    return issue(claims(iss, aud, **changes), iss.sign)


def forge(delegation, signer=MALLORY, **changes):
    """The same claims but for the changes, signed by somebody else (or by nobody: None)."""
    payload = structs.replace(delegation.payload, **changes)
    if signer is None:
        return seal_envelope(payload, delegation.signature)
    return seal_envelope(payload, signer.sign(to_be_signed(payload)))


def line(*people, **changes):
    """A chain along these people; `changes` go into every link."""
    return [delegate(iss, aud, **changes) for iss, aud in pairwise(people)]
