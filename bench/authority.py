"""`bench authority`: what it costs to know that an op's author may author it.

`warm_us`: the check of one claim under a chain of three with a policy, everything seen before.
`cold_chain5_us`: the same for a chain of five that was just put on the log: five envelopes opened,
five signatures verified, the chain put together.
`apply_per_s`: the reducer with such a chain on every op, to hold beside `bench apply`.
"""

from __future__ import annotations

import argparse
import time

from msgspec.structs import replace
from nacl import bindings

from antiphon.core import manifest, opened_record
from antiphon.core.authority.control import Control
from antiphon.core.authority.delegations import Grants
from antiphon.core.authority.register import Register
from antiphon.core.authority.rules import Rules
from antiphon.core.clock import hlc
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import (
    ClaimBody,
    CompleteBody,
    JobClaim,
    JobComplete,
    JobSchedule,
    ScheduleBody,
)
from antiphon.core.families.jobs.state import EMPTY, State
from antiphon.core.family import At, Lane
from antiphon.core.opened_record import OpenedRecord
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import did_of
from antiphon.core.reducer import Outcome, author_fault, judge
from antiphon.core.ucan import Payload, Policy, issue, open_envelope
from antiphon.runtime.identity.key_files import SeedKeyring
from bench.measurement.report import conclude, median, say
from bench.signed_log import KIND, proved

NOW_MS = 1_763_000_000_000
KEYS = [bindings.crypto_sign_seed_keypair(bytes([number]) * 32) for number in range(1, 8)]
DIDS = [did_of(public) for public, _ in KEYS]


def chain_of(length: int) -> list[bytes]:
    """Envelopes from the owner (key 0) down to the holder of the last."""
    return [
        issue(
            Payload(
                iss=DIDS[at],
                aud=DIDS[at + 1],
                sub=DIDS[0],
                cmd="/job",
                pol=Policy([["like", ".kind", "bench.*"]]),
                nonce=b"twelve bytes",
                exp=NOW_MS // 1000 + 86_400,
            ),
            lambda message, at=at: bindings.crypto_sign(message, KEYS[at][1])[:64],  # type: ignore[misc]
        ).raw
        for at in range(length)
    ]


def on_the_log(envelopes: list[bytes]) -> tuple[Control, tuple[str, ...]]:
    """A control state that knows these delegations, and their cids."""
    grants = Grants()
    opened = [open_envelope(raw) for raw in envelopes]
    for seq, delegation in enumerate(opened, start=2):
        grants.grant(seq, delegation)
    control = Control(
        mesh="a" * 16,
        since=1,
        owner=DIDS[0],
        recovery=DIDS[0],
        coordinator=DIDS[0],
        rules=Rules(),
        owner_hlc=(0, 0),
        drift_most_ms=0,
        archives=[],
        grants=grants,
        targets=Register(),
        quarantines=Register(),
        op_ids={},
    )
    return control, tuple(delegation.cid for delegation in opened)


def opened(seq: int, kind: type, body: object, cids: tuple[str, ...], prev: int) -> OpenedRecord:
    op = kind(
        v=1,
        mesh="a" * 16,
        author=DIDS[len(cids)],
        hlc=(NOW_MS, seq),
        prev=prev,
        deps=(),
        auth=cids,
        body=body,
    )
    return opened_record.unsigned(PROTOCOL, op, seq, NOW_MS)


def a_life(cids: tuple[str, ...]) -> list[OpenedRecord]:
    content = manifest.author({"command": [f"@{KIND}"], "args": ["{}"], "timeout": 60})
    job_id = manifest.job_id(content)
    claim = ClaimBody(kind=KIND, job=job_id, lease_ms=30_000, begin=True)
    fence = hlc.pack((NOW_MS, 101))
    done = proved(
        SeedKeyring(bytes([len(cids) + 1]) * 32),
        "a" * 16,
        CompleteBody(kind=KIND, job=job_id, fence=fence, status="succeeded"),
    )
    return [
        opened(100, JobSchedule, ScheduleBody(kind=KIND, manifest=content), cids, 0),
        opened(101, JobClaim, claim, cids, 0),
        opened(102, JobComplete, done, cids, 101),
    ]


def warm_us(rounds: int) -> float:
    control, cids = on_the_log(chain_of(3))
    claim = a_life(cids)[1]
    assert isinstance(claim.op, JobClaim)
    assert claim.place is not None
    at = At(claim.seq, claim.commit_ms, control, claim.place.key)
    assert author_fault(JOBS, None, claim.op, at) is None
    begun = time.perf_counter()
    for _ in range(rounds):
        author_fault(JOBS, None, claim.op, at)
    return (time.perf_counter() - begun) / rounds * 1e6


def cold_us(rounds: int) -> float:
    envelopes = chain_of(5)
    begun = time.perf_counter()
    for _ in range(rounds):
        control, cids = on_the_log(envelopes)
        claim = a_life(cids)[1]
        assert isinstance(claim.op, JobClaim)
        assert claim.place is not None
        at = At(claim.seq, claim.commit_ms, control, claim.place.key)
        assert author_fault(JOBS, None, claim.op, at) is None
    return (time.perf_counter() - begun) / rounds * 1e6


def applied_per_s(rounds: int) -> float:
    control, cids = on_the_log(chain_of(3))
    life = [replace(one, is_verified=True) for one in a_life(cids)]
    lane: Lane = EMPTY
    begun = time.perf_counter()
    for _ in range(rounds):
        lane = EMPTY
        for record in life:
            outcome = judge(control, lane, record)
            assert isinstance(outcome, Outcome)
            lane = outcome.lane
    took = time.perf_counter() - begun
    assert lane.state.state is State.SUCCEEDED
    return rounds * len(life) / took


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench authority")
    parser.add_argument("--quick", action="store_true")
    rounds = 2 if parser.parse_args(argv).quick else 7
    warm = [warm_us(20_000) for _ in range(rounds)]
    cold = [cold_us(200) for _ in range(rounds)]
    rate = [applied_per_s(10_000) for _ in range(rounds)]
    say(f"warm {min(warm):.1f}…{max(warm):.1f} µs, cold {min(cold):.0f}…{max(cold):.0f} µs")
    conclude(
        warm_us=round(median(warm), 2),
        cold_chain5_us=round(median(cold), 1),
        apply_per_s=round(median(rate)),
        warm_spread=[round(min(warm), 2), round(max(warm), 2)],
        cold_spread=[round(min(cold), 1), round(max(cold), 1)],
    )
    return 0 if median(warm) <= 20 and median(cold) <= 1000 and median(rate) >= 40_000 else 1
