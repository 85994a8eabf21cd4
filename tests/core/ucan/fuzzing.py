"""An attacker who holds the leaf's key, and mutates whatever she can reach.

Mallory is the last audience of an honest chain from Alice, and Erin is her accomplice: both keys
are hers. She changes bytes, fields and the order of links, signs with her own keys, keeps old
signatures, and delegates further. Two things must hold for every chain that comes out:

- nothing is raised but our own errors, and judging raises nothing at all;
- if the chain admits Mallory or Erin, the honest chain admits Mallory, for the same command,
  arguments and times: what she may do can be shared, never widened.

`fuzz(200_000, seed)` is the long run, by hand; the test suite runs a short one.
"""

import random
from collections import Counter

import libipld
from msgspec import UNSET

from antiphon.core.ucan import Chain, SignatureCache, open_envelope
from antiphon.core.ucan.envelope import _SIGNATURE, _SIGNED_HEAD
from antiphon.core.ucan.signatures import is_signed
from antiphon.errors import AntiphonError
from tests.core.ucan.principals import ALICE, BOB, CAROL, ERIN, EVERYONE, MALLORY, NOW, delegate

HERS = (MALLORY, ERIN)
DIDS = [*EVERYONE, *(who.did for who in HERS)]
COMMANDS = ["/", "/job", "/job/claim", "/job/claim/now", "/job/read", "/mesh", "/jobs"]
POLICIES = [
    [],
    [["like", ".kind", "render.*"]],
    [["like", ".kind", "*"]],
    [["<", ".frames", 100]],
    [["not", ["==", ".kind", "train"]]],
    [["or", []]],
    [["all", ".tags", ["any", ".", ["==", ".", 1]]]],
    [["any", ".tags[]", ["==", ".[0]?", None]]],
]
ARGUMENTS = [
    {"kind": "render.frame", "frames": 10, "tags": [[1]]},
    {"kind": "render.frame", "frames": 1000},
    {"kind": "train", "frames": 10},
    {"kind": ["render.*"], "frames": True},
    {},
]
TIMES = [[NOW], [NOW - 50], [NOW + 50], [NOW - 50, NOW], [NOW, NOW + 50], [0], [2**60]]
JUNK = [
    None,
    True,
    0,
    -1,
    1.5,
    2**53,
    "",
    "x",
    "did:key:z6Mk",
    b"",
    b"x" * 12,
    [],
    {},
    [[]],
    {"": 0},
]
HONEST = (
    [
        delegate(ALICE, MALLORY, cmd="/job/claim", pol=POLICIES[1], exp=NOW + 10),
    ],
    [
        delegate(ALICE, BOB, cmd="/job", pol=POLICIES[3], exp=None),
        delegate(BOB, CAROL, sub=None, cmd="/", nbf=NOW - 10, meta={"alias": "gpu"}),
        delegate(CAROL, MALLORY, cmd="/job/claim", pol=POLICIES[1], exp=NOW + 10),
    ],
)


def does_alice_allow(long, command, arguments, times):
    """What the short and the long honest chain admit, told without the package."""
    kind, frames = arguments.get("kind"), arguments.get("frames")
    if command not in {"/job/claim", "/job/claim/now"} or max(times) > NOW + 10:
        return False
    if not isinstance(kind, str) or not kind.startswith("render."):
        return False
    return not long or (type(frames) is int and frames < 100 and min(times) >= NOW - 10)


def fuzz(rounds, seed):
    """Run so many rounds; the tally of verdicts, or an AssertionError that names the round."""
    chance = random.Random(seed)
    cache = SignatureCache()
    tally = Counter()
    for number in range(rounds):
        long = chance.random() < 0.5
        envelopes = [link.raw for link in HONEST[long]]
        for _ in range(chance.randint(0, 3)):
            chance.choice(MUTATIONS)(envelopes, chance)
        invoker = chance.choice(HERS).did
        # What the honest chains admit, or one step beside it: there a widening would show.
        asked = ["/job/claim", ARGUMENTS[0], [NOW]]
        beside = chance.randrange(4)
        if beside < len(asked):
            asked[beside] = chance.choice((COMMANDS, ARGUMENTS, TIMES)[beside])
        try:
            outcome = attack(envelopes, invoker, asked, cache)
        except Exception as problem:
            raise AssertionError(f"round {number} of seed {seed} raised {problem!r}") from problem
        if outcome == "ok" and not does_alice_allow(long, *asked):
            told = f"round {number} of seed {seed} admitted {invoker} to {asked}: {envelopes}"
            raise AssertionError(told)
        tally[outcome] += 1
    return tally


def attack(envelopes, invoker, asked, cache):
    """What becomes of the chain, as a word; every link is opened, as on its way to the log."""
    links = [opened(raw) for raw in envelopes]
    if None in links:
        return "malformed"
    return Chain.of(ALICE.did, links, is_signed=cache).judge(invoker, *asked).verdict.value


def opened(raw):
    """A delegation that writes itself back, or None after one of our own errors."""
    try:
        delegation = open_envelope(raw)
        # Sometimes asked without the cache: the two must not differ in what they raise.
        if raw[-1] % 16 == 0:
            is_signed(delegation)
    except AntiphonError:
        return None
    assert delegation.raw == raw
    return delegation


# --- what can be done to a list of envelopes -------------------------------------------------


def change_bytes(envelopes, chance):
    if not envelopes:
        return
    at = chance.randrange(len(envelopes))
    raw = bytearray(envelopes[at])
    for _ in range(chance.randint(1, 3)):
        low, high = sorted((chance.randrange(len(raw) + 1), chance.randrange(len(raw) + 1)))
        match chance.randrange(6):
            case 0 if low < len(raw):
                raw[low] ^= 1 << chance.randrange(8)
            case 1 if low < len(raw):
                raw[low] = chance.randrange(256)
            case 2:
                del raw[low : low + chance.randint(1, 8)]
            case 3:
                raw[low:low] = chance.randbytes(chance.randint(1, 8))
            case 4:
                raw[low:low] = raw[low:high]
            case _:
                other = chance.choice(envelopes)
                raw[low:high] = other[low:high]
    envelopes[at] = bytes(raw)


def change_fields(envelopes, chance):
    if not envelopes:
        return
    at = chance.randrange(len(envelopes))
    try:
        signature, signed = libipld.decode_dag_cbor(envelopes[at])
        fields = dict(next(reversed(signed.values())))
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return
    for _ in range(chance.randint(1, 2)):
        change_one(fields, chance)
    envelopes[at] = written(fields, signature, chance)


def change_one(fields, chance):
    name = chance.choice(["iss", "aud", "sub", "cmd", "pol", "nonce", "meta", "nbf", "exp", "x"])
    if chance.random() < 0.1:
        fields.pop(name, None)
    elif chance.random() < 0.2:
        fields[name] = chance.choice(JUNK)
    else:
        fields[name] = sensible(name, chance)


def sensible(name, chance):
    match name:
        case "iss" | "aud" | "sub":
            return chance.choice(DIDS)
        case "cmd":
            return chance.choice(COMMANDS)
        case "pol":
            return chance.choice(POLICIES)
        case "nonce":
            return chance.randbytes(12)
        case "meta":
            return {"audit": chance.choice(JUNK)}
        case _:
            return chance.choice([None, NOW - 20, NOW, NOW + 20, 2**53 - 1])


def written(fields, signature, chance):
    """The envelope of these fields, under one of her signatures or the old one."""
    try:
        signed = _SIGNED_HEAD + libipld.encode_dag_cbor(fields)
    except (ValueError, TypeError):
        return b""
    match chance.randrange(4):
        case 0:
            pass
        case 1:
            signature = bytes(64)
        case _:
            signature = chance.choice(HERS).sign(signed)
    if not isinstance(signature, bytes) or len(signature) != 64:
        signature = bytes(64)
    return _SIGNATURE + signature + signed


def change_order(envelopes, chance):
    if not envelopes:
        return
    at, other = chance.randrange(len(envelopes)), chance.randrange(len(envelopes))
    match chance.randrange(5):
        case 0:
            del envelopes[at]
        case 1:
            envelopes.insert(other, envelopes[at])
        case 2:
            envelopes[at], envelopes[other] = envelopes[other], envelopes[at]
        case 3:
            envelopes.reverse()
        case _:
            # Never the short chain's link: it admits more, and she holds it rightly.
            envelopes[at] = chance.choice(HONEST[True]).raw


def delegate_further(envelopes, chance):
    """A well-made link between her two keys, narrow or wide."""
    iss, aud = chance.sample(HERS, 2)
    link = delegate(
        iss,
        aud,
        sub=chance.choice([ALICE.did, ALICE.did, None, UNSET, iss.did]),
        cmd=chance.choice(COMMANDS),
        pol=chance.choice(POLICIES),
        exp=chance.choice([None, NOW + 20, NOW - 20]),
        nbf=chance.choice([UNSET, NOW - 20]),
        nonce=b"her own nonce",
    )
    envelopes.insert(chance.choice([len(envelopes)] * 4 + [0]), link.raw)


MUTATIONS = [change_bytes, change_fields, change_fields, change_order, delegate_further]
