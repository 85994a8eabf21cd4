"""What Hypothesis draws: values of the canonical profile, and ops of every type."""

from typing import get_args

from hypothesis import settings
from hypothesis import strategies as st
from nacl import bindings

from antiphon.core.authority.delegations import token_of
from antiphon.core.authority.rules import Rules
from antiphon.core.clock.hlc import MAX_LOGICAL, MAX_WALL, pack
from antiphon.core.cost.usage import Usage
from antiphon.core.families.grants.ops import DelegateBody, RevokeBody, UcanDelegate, UcanRevoke
from antiphon.core.families.jobs.ops import (
    MAX_ARTIFACTS,
    ArtifactBody,
    CancelBody,
    ClaimBody,
    CompleteBody,
    EvictBody,
    ExpireBody,
    Failure,
    JobArtifact,
    JobCancel,
    JobClaim,
    JobComplete,
    JobEvict,
    JobExpire,
    JobOffer,
    JobSchedule,
    JobStart,
    JobYield,
    OfferBody,
    Retry,
    ScheduleBody,
    StartBody,
    YieldBody,
)
from antiphon.core.families.jobs.priority import PRIORITIES
from antiphon.core.families.locks.ops import (
    BreakBody,
    LockBreak,
    LockRelease,
    LockTake,
    ReleaseBody,
    Successor,
    TakeBody,
)
from antiphon.core.families.mesh.ops import (
    CoordinatorBody,
    EvidenceBody,
    Genesis,
    MeshCoordinator,
    MeshEvidence,
    MeshGenesis,
    MeshReadmit,
    MeshRecover,
    MeshRoute,
    MeshRules,
    ReadmitBody,
    RecoverBody,
    RouteBody,
    RulesBody,
)
from antiphon.core.families.seals.ops import MeshSeal, SealBody
from antiphon.core.manifest import BlobInput, Manifest, NonceInput, Origin
from antiphon.core.proof.output import Output, Stored
from antiphon.core.proof.statement import Proof, Runner
from antiphon.core.record.codec import MAX_INTEGER
from antiphon.core.ucan import Payload, Policy, issue
from tests.core.authors import ALICE, OWNER
from tests.examples import examples

# A failure prints the blob that reproduces it; time limits are the runner's.
THOROUGH = settings(max_examples=examples(300), print_blob=True)
BRISK = settings(max_examples=examples(100), print_blob=True)

# Everything that UTF-8 can say: control characters, quotes, non-BMP, no lone surrogates.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
integers = st.integers(-MAX_INTEGER, MAX_INTEGER)
ascii_keys = st.text(st.characters(max_codepoint=127), max_size=12)
plain_values = st.recursive(
    st.none() | st.booleans() | integers | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ascii_keys, inner, max_size=5),
    max_leaves=20,
)

hexes = st.text("0123456789abcdef", min_size=64, max_size=64)
digests = hexes.map("blake3:".__add__)
hlcs = st.tuples(st.integers(0, MAX_WALL), st.integers(0, MAX_LOGICAL))
fences = hlcs.map(pack)
tokens = st.from_regex(r"\A[a-z][a-z0-9]{0,5}\Z") | st.sampled_from(
    ["jobs", "wait", "job", "ctl", "seal", "a", "b"]
)
later_tokens = tokens | st.sampled_from(["0", "1", "2", "0a", "x-y", "x_y"])
kinds = st.builds(
    lambda head, rest: ".".join([head, *rest]), tokens, st.lists(later_tokens, max_size=3)
)


def optional(strategy):
    return st.none() | strategy


def sparse(build, required, extra):
    """Structs with the required fields and any subset of the others."""
    return st.fixed_dictionaries(required, optional=extra).map(lambda fields: build(**fields))


manifests = sparse(
    Manifest,
    {
        "command": st.lists(texts, min_size=1, max_size=3).map(tuple),
        "args": st.lists(texts, max_size=3).map(tuple),
        "timeout": st.integers(0, 86_400),
    },
    {
        "env": st.dictionaries(st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_]{0,8}\Z"), texts, max_size=4),
        "cwd": st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
        "inputs": st.lists(
            sparse(
                BlobInput,
                {"algo": st.just("blake3"), "hash": digests},
                {"size": st.integers(0, MAX_INTEGER), "name": st.just("data.bin")},
            )
            | st.builds(NonceInput, nonce=hexes, origin=st.sampled_from(get_args(Origin))),
            max_size=3,
        ).map(tuple),
        "outputs": st.lists(st.sampled_from(["*", "**/*.txt"]), max_size=2).map(tuple),
        "secrets": st.lists(st.sampled_from(["token", "a.key"]), max_size=2).map(tuple),
        "network": st.just(True),
        "policy_root": hexes.map("sha256:".__add__),
        "ulid": st.just("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    },
)

rules = sparse(
    Rules,
    {},
    {
        "protocol": st.integers(1, 65_535),
        "authority": st.sampled_from(["chain", "open"]),
        "max_drift_ms": st.integers(1, 600_000),
        "lease_ms": st.integers(1, 10_000_000),
        "attempts": st.integers(1, 1000),
        "selection": st.lists(
            st.tuples(tokens, st.sampled_from(["queue", "rendezvous"])), max_size=3
        ).map(tuple),
    },
)

_on_job = {"kind": kinds, "job": hexes}
_on_lock = {"kind": kinds, "key": st.sampled_from(["file:src/lib.rs", 'ä "key"'])}
_agent = st.sampled_from(["main", "deploy-2"])
_ttl_ms = st.integers(1, MAX_INTEGER)
_failure = sparse(
    Failure, {"name": st.just("ValueError")}, {"message": texts}
)  # fmt: skip
_stored = sparse(
    Stored,
    {"hash": digests, "size": st.integers(0, MAX_INTEGER)},
    {"sha256": optional(hexes)},
)
_typed = {"type": optional(st.just("text/plain"))}
_output = st.one_of(
    sparse(Output, {"name": st.just("out"), "text": texts}, _typed),
    sparse(Output, {"name": st.just("out"), "stored": _stored}, _typed),
)
_dids = st.sampled_from([OWNER.did, ALICE.did])

_delegations = st.builds(
    lambda aud, cmd, nonce: issue(
        Payload(
            iss=OWNER.did,
            aud=aud,
            sub=OWNER.did,
            cmd=cmd,
            pol=Policy([["like", ".kind", "render.*"]]),
            nonce=nonce,
            exp=None,
        ),
        lambda message: bindings.crypto_sign(message, OWNER.secret)[:64],
    ),
    _dids,
    st.sampled_from(["/job", "/job/claim"]),
    st.sampled_from([b"twelve bytes", b"another nonce"]),
)
_tokens = _delegations.map(lambda given: token_of(given.raw))

bodies = {
    MeshGenesis: sparse(
        Genesis,
        {"name": st.just("m"), "owner": _dids, "recovery": _dids, "rules": rules},
        {},
    ),
    MeshRules: sparse(RulesBody, {"rules": rules}, {}),
    MeshRoute: sparse(RouteBody, {"kind": kinds}, {"target": optional(_dids)}),
    MeshCoordinator: sparse(CoordinatorBody, {"node": _dids}, {}),
    MeshRecover: sparse(RecoverBody, {"owner": _dids, "recovery": _dids}, {}),
    MeshEvidence: sparse(EvidenceBody, {"node": _dids, "first": texts, "second": texts}, {}),
    MeshReadmit: sparse(ReadmitBody, {"node": _dids}, {}),
    MeshSeal: sparse(
        SealBody,
        {
            "upto": st.integers(1, MAX_INTEGER),
            "size": st.integers(1, MAX_INTEGER),
            "root": hexes,
        },
        {"state": optional(digests)},
    ),
    UcanDelegate: sparse(DelegateBody, {"token": _tokens}, {}),
    UcanRevoke: sparse(RevokeBody, {"cid": _delegations.map(lambda given: given.cid)}, {}),
    JobSchedule: sparse(
        ScheduleBody,
        {"kind": kinds, "manifest": manifests},
        {
            "priority": st.sampled_from(PRIORITIES),
            "retry": sparse(
                Retry,
                {},
                {
                    "attempts": optional(st.integers(1, 1000)),
                    "base_ms": st.integers(0, 3_600_000),
                    "give_up_on": st.lists(texts.filter(bool), max_size=2).map(tuple),
                },
            ),
            "lease_ms": optional(st.integers(1, MAX_INTEGER)),
            "start_by": optional(st.integers(0, MAX_WALL)),
            "not_before": optional(st.integers(0, MAX_WALL)),
            "concurrency": optional(st.just("gpu")),
            "requires": st.lists(st.just("os=linux"), max_size=2).map(tuple),
            "retry_of": optional(hexes),
        },
    ),
    JobOffer: sparse(OfferBody, _on_job, {"priority": st.sampled_from(PRIORITIES)}),
    JobClaim: sparse(
        ClaimBody,
        {**_on_job, "lease_ms": st.integers(1, MAX_INTEGER)},
        {"begin": st.booleans(), "fence": optional(fences)},
    ),
    JobStart: sparse(StartBody, {**_on_job, "fence": fences}, {}),
    JobComplete: sparse(
        CompleteBody,
        {**_on_job, "fence": fences, "status": st.sampled_from(["succeeded", "failed"])},
        {
            "outputs": st.lists(_output, max_size=2).map(tuple),
            "error": optional(_failure),
            "exit": optional(st.integers(-255, 255)),
            "proof": optional(
                st.builds(
                    Proof,
                    sig=st.binary(min_size=64, max_size=64),
                    ended=fences,
                    runner=st.just(Runner(name="test", version="1", platform="any")),
                    usage=st.just(Usage(wall_ms=1)),
                )
            ),
        },
    ),
    JobYield: sparse(
        YieldBody,
        {**_on_job, "fence": fences, "reason": st.sampled_from(["error", "drain", "other"])},
        {"retry_after_ms": st.integers(0, MAX_INTEGER), "error": optional(_failure)},
    ),
    JobArtifact: sparse(
        ArtifactBody,
        {
            **_on_job,
            "fence": fences,
            "as_": st.sampled_from(sorted(MAX_ARTIFACTS)),
            "name": texts.filter(bool),
            "n": st.integers(0, 300),
        },
        {
            "of": optional(digests),
            "value": optional(texts),
            "digest": optional(digests),
            "size": optional(st.integers(0, MAX_INTEGER)),
        },
    ),
    JobExpire: sparse(ExpireBody, _on_job, {"fence": optional(fences)}),
    JobCancel: sparse(CancelBody, _on_job, {"reason": texts}),
    JobEvict: sparse(EvictBody, {**_on_job, "hash": digests}, {}),
    LockTake: sparse(
        TakeBody, {**_on_lock, "agent": _agent, "ttl_ms": _ttl_ms}, {"fence": optional(fences)}
    ),
    LockRelease: sparse(
        ReleaseBody,
        {**_on_lock, "agent": _agent, "fence": fences},
        {"pass_to": optional(st.builds(Successor, node=_dids, agent=_agent, ttl_ms=_ttl_ms))},
    ),
    LockBreak: sparse(BreakBody, _on_lock, {"fence": optional(fences)}),
}


def ops_of(kind):
    """Ops of one type; everything that the schema allows."""
    return st.builds(
        kind,
        v=st.just(1),
        mesh=st.just("" if kind is MeshGenesis else "a" * 16),
        author=_dids,
        hlc=hlcs,
        prev=st.integers(0, MAX_INTEGER),
        deps=st.lists(st.tuples(st.integers(0, MAX_INTEGER), digests), max_size=2).map(tuple),
        auth=st.lists(st.just("bafyx"), max_size=2).map(tuple),
        body=bodies[kind],
    )


any_op = st.one_of([ops_of(kind) for kind in bodies])
