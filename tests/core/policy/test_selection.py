"""Draws, ranks and who counts: each formula by a known answer, the rest as properties."""

import decimal
from collections import Counter
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core import manifest as manifest_ids
from antiphon.core.authority.chain_choice import ChainChoice
from antiphon.core.authority.rules import Rules
from antiphon.core.families.jobs.ops import JobSchedule, ScheduleBody
from antiphon.core.policy import selection
from antiphon.core.policy.selection import Candidate, Need, Unfit
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import RENDER, Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER, Author, sign_batch, signed
from tests.core.ledger import T0, Ledger, Story, manifest
from tests.core.strategies import BRISK, hexes

JOB, SEED = "0f" * 32, bytes([0xA1]) * 32
DID = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
DRAW = "80878644d7610f2a3fe417e84584e18e7a5ac64997b82704b28186d2f61afa18"
"""Of the three above, by `sha256sum`."""
LOT = "714cf8181bbaf46e5ac8bab9aae57e93cb6e05bcd570dcad5e326ea4c49bf25d"
NEED = Need(kind="render", job_id=JOB, seed=SEED)

seeds = st.binary(min_size=32, max_size=32)
dids = st.integers(0, 10**6).map("did:key:z6Mk{:044d}".format)
companies = st.dictionaries(dids, st.integers(1, 4), min_size=1, max_size=8).map(
    lambda weights: [worker(did, weight=weight) for did, weight in weights.items()]
)


def worker(did: str = DID, **fields) -> Candidate:
    return Candidate(did=did, **{"kinds": ("render",), **fields})


def winners(jobs: int, presence: list[Candidate]) -> Counter:
    needs = (Need(kind="render", job_id=f"{n:064x}", seed=SEED) for n in range(jobs))
    return Counter(selection.ranked(need, presence)[0].candidate.did for need in needs)


# --- lots -------------------------------------------------------------------------------------


@pytest.mark.req("G1")
def test_a_draw_is_the_sha256_of_the_job_id_the_seeds_bytes_and_the_worker_id_in_a_row():
    assert selection.draw(JOB, SEED, DID).hex() == DRAW


@pytest.mark.req("G9")
def test_a_score_is_the_logarithm_divided_by_the_weight_digit_for_digit():
    lot = bytes.fromhex(LOT)
    assert str(selection.score(lot, 1)) == "0.5844375494164253755305783222112859738809"
    assert str(selection.score(lot, 4)) == "0.1461093873541063438826445805528214934702"
    assert selection.score(bytes(32), 1) == 0


def test_a_score_does_not_depend_on_the_precision_that_the_program_happens_to_use():
    lot = bytes.fromhex(LOT)
    with decimal.localcontext() as context:
        context.prec = 5
        assert str(selection.score(lot, 1)) == "0.5844375494164253755305783222112859738809"


def a_schedule(word: str = "1") -> JobSchedule:
    return JobSchedule(
        v=1,
        mesh="a" * 16,
        author=ALICE.did,
        hlc=(T0, 0),
        prev=0,
        deps=(),
        auth=(),
        body=ScheduleBody(kind="render", manifest=manifest(word)),
    )


@pytest.mark.req("G2")
def test_the_seed_is_the_first_half_of_the_schedules_signature():
    record = signed(ALICE, a_schedule())
    digits = ALICE.sign(record.op_bytes).sig.hex()[:64]
    assert selection.seed_of(record.payload) == bytes.fromhex(digits)


def test_under_a_batch_signature_each_op_has_a_seed_of_its_own():
    many = [codec.encode(a_schedule(word)) for word in ("1", "2")]
    blocks = sign_batch(ALICE, "a" * 16, many)
    assert blocks[0].sig == blocks[1].sig
    one, two = (
        selection.seed_of(signing.frame(op_bytes, block))
        for op_bytes, block in zip(many, blocks, strict=True)
    )
    shared = blocks[0].sig[:32]
    assert one == sha256(shared + digest(many[0]).encode()).digest()
    assert one != two


def grid_claims(job: str, signature: str, me: str, known: set[str]) -> bool:
    """Whether this worker should take the job, as the grid asks it; restated from its description.

    The first 64 digits of the job's signature spell 32 bytes. They stand between the two ids;
    whoever has the smallest SHA-256 of the whole takes the job.
    """
    spelt = signature[:64]
    salt = bytes(int(spelt[at : at + 2], 16) for at in range(0, 64, 2))

    def number(worker: str) -> int:
        hashed = sha256(b"".join((bytes(job, "utf-8"), salt, bytes(worker, "utf-8"))))
        return int(hashed.hexdigest(), 16)

    return all(number(me) <= number(other) for other in known)


@given(st.text("abcdef", min_size=1, max_size=4), st.sets(dids, min_size=1, max_size=8))
@BRISK
@pytest.mark.req("G1", "G2")
def test_the_grids_own_function_on_the_same_signature_gives_the_same_order(word, presence):
    record = signed(ALICE, a_schedule(word))
    signature, job = ALICE.sign(record.op_bytes).sig.hex(), manifest_ids.job_id(manifest(word))
    need = Need(kind="render", job_id=job, seed=selection.seed_of(record.payload))
    ours = [drawn.candidate.did for drawn in selection.ranked(need, map(worker, presence))]
    grids = []
    while presence:
        (first,) = (one for one in presence if grid_claims(job, signature, one, presence))
        grids.append(first)
        presence = presence - {first}
    assert ours == grids


@given(hexes, seeds, companies)
@BRISK
@pytest.mark.req("G1")
def test_everyone_computes_the_same_order_whatever_order_they_know_the_others_in(
    job, seed, presence
):
    need = Need(kind="render", job_id=job, seed=seed)
    order = [drawn.candidate.did for drawn in selection.ranked(need, presence)]
    assert order == [one.candidate.did for one in selection.ranked(need, reversed(presence))]
    for me in presence:
        others = [one for one in presence if one.did != me.did]
        assert order[selection.rank_of(need, me, others)] == me.did


@given(hexes, seeds, st.sets(dids, min_size=1, max_size=8))
@BRISK
def test_with_equal_weights_the_lowest_draw_wins(job, seed, presence):
    need = Need(kind="render", job_id=job, seed=seed)
    winner = selection.ranked(need, map(worker, presence))[0]
    assert winner.draw == min(selection.draw(job, seed, did) for did in presence)


@given(seeds, companies)
@BRISK
@pytest.mark.req("G10")
def test_when_one_vanishes_the_others_keep_their_order(seed, presence):
    need = Need(kind="render", job_id=JOB, seed=seed)
    order = [drawn.candidate for drawn in selection.ranked(need, presence)]
    for gone in order:
        left = [one for one in order if one is not gone]
        assert [drawn.candidate for drawn in selection.ranked(need, left)] == left


@pytest.mark.req("G3")
def test_with_nobody_else_known_a_worker_is_first():
    assert selection.rank_of(NEED, worker(), []) == 0


@pytest.mark.req("G4")
def test_equal_workers_win_equally_often():
    presence = [worker(f"did:key:{n}") for n in range(5)]
    won = winners(2_000, presence)
    chi2 = sum((won[one.did] - 400) ** 2 / 400 for one in presence)
    assert chi2 < 23.5, "beyond this lies one in ten thousand at four degrees of freedom"


@pytest.mark.req("G9")
def test_a_weight_of_four_wins_four_times_as_often_as_one():
    light, heavy = worker("did:key:light"), worker("did:key:heavy", weight=4)
    won = winners(2_000, [light, heavy])
    assert won[heavy.did] / 2_000 == pytest.approx(0.8, abs=0.03)


@pytest.mark.req("G5")
def test_what_a_worker_gets_cannot_be_told_before_the_call_is_signed():
    """Every signature deals anew: neither the job nor earlier seeds say who will be first."""
    presence = [worker(f"did:key:{n}") for n in range(4)]
    firsts = Counter()
    for n in range(400):
        seed = selection.seed_of(signed(Author(f"caller {n}"), a_schedule()).payload)
        need = Need(kind="render", job_id=JOB, seed=seed)
        firsts[selection.ranked(need, presence)[0].candidate.did] += 1
    assert len(firsts) == len(presence)
    assert min(firsts.values()) > 60


@pytest.mark.req("G5")
def test_a_key_made_to_draw_lowest_is_no_candidate_and_its_claim_is_rejected():
    """A worker knows the seed once a job is there, and can make keys until one draws lowest."""
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    story = court.job("render.frame")
    seed = selection.seed_of(court.ledger.log[-1].payload)
    honest = selection.draw(story.id, seed, ALICE.did)
    keys = (Author(f"key {n}") for n in range(10_000))
    made = next(one for one in keys if selection.draw(story.id, seed, one.did) < honest)
    control = court.ledger.history.at(len(court.ledger.log), T0)
    where = {"kind": "render.frame", "job_id": story.id, "now_ms": T0}
    faults = [
        selection.claim_fault(control, ChainChoice(one.did), did=one.did, **where)
        for one in (ALICE, made)
    ]
    assert faults == [None, Verdict.NO_CHAIN]
    assert story.claim(made) is Verdict.NO_CHAIN


@pytest.mark.req("G5")
def test_signing_an_accepted_job_again_draws_nothing_anew_and_who_is_last_may_claim_too():
    """A caller chooses among its own signatures before the job is there, and gains nothing."""
    presence = [worker(one.did) for one in (ALICE, BOB, CAROL)]
    story = Story()
    assert story.schedule(OWNER) is Verdict.OK
    seed = selection.seed_of(story.ledger.log[-1].payload)
    need = Need(kind=story.kind, job_id=story.id, seed=seed)
    order = [one.candidate.did for one in selection.ranked(need, presence)]
    again = set()
    for n in range(20):
        assert story.schedule(OWNER, how={"at": 10 + n}) is Verdict.EXISTS
        again.add(selection.seed_of(story.ledger.log[-1].payload))
    assert len(again | {seed}) == 21, "each would have dealt anew"
    assert story.job.scheduled_seq == 2, "the accepted schedule is the one that workers draw by"
    last = next(one for one in (ALICE, BOB, CAROL) if one.did == order[-1])
    assert story.claim(last, at=100) is Verdict.OK


def test_the_first_rank_claims_at_once_and_each_next_a_window_later():
    assert selection.wait_s(0, window_ms=1_500, chance=0.9) == 0
    assert selection.wait_s(1, window_ms=1_500, chance=0) == 1.5
    assert selection.wait_s(3, window_ms=1_000, chance=0) == 3


@pytest.mark.req("M24")
@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True))
def test_waits_are_jittered_and_ranks_never_overtake_each_other(rank, chance):
    wait_s = selection.wait_s(rank, window_ms=1_500, chance=chance)
    assert rank * 1.5 <= wait_s < (rank + 1) * 1.5


@pytest.mark.req("G8")
def test_of_two_claims_the_earlier_wins_and_then_the_lower_id():
    assert selection.is_earlier((1, "z"), (2, "a"))
    assert selection.is_earlier((1, "a"), (1, "b"))
    assert not selection.is_earlier((1, "b"), (1, "a"))


@given(hexes, st.sets(dids, min_size=1, max_size=6))
@BRISK
def test_exactly_one_of_several_nodes_writes_at_once(job, nodes):
    turns = sorted(selection.turn(job, "f" * 16, node, nodes) for node in nodes)
    assert turns == list(range(len(nodes)))


# --- who counts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, requires, why",
    [
        ({}, (), None),
        ({"is_alive": False}, (), Unfit.SILENT),
        ({"kinds": ("build",)}, (), Unfit.OTHER_KINDS),
        ({"free": 0}, (), Unfit.BUSY),
        ({}, ("gpu",), Unfit.LABELS),
        ({"labels": ("gpu=a100",)}, ("gpu",), None),
        ({"labels": ("gpu=a100",)}, ("gpu=a100",), None),
        ({"labels": ("gpu=a100",)}, ("gpu=h100",), Unfit.LABELS),
        ({"labels": ("gpu",)}, ("gpu=a100",), Unfit.LABELS),
        ({"labels": ("gpu", "eu")}, ("gpu", "eu"), None),
    ],
)
def test_a_worker_counts_only_where_it_could_do_the_job(fields, requires, why):
    need = Need(kind="render", job_id=JOB, seed=SEED, requires=requires)
    assert selection.unfitness(need, worker(**fields), now_ms=T0) is why


def test_a_worker_whose_tenure_expired_counts_again_after_its_cool_down():
    need = Need(kind="render", job_id=JOB, seed=SEED, cooling=((DID, T0),))
    assert selection.unfitness(need, worker(), now_ms=T0 - 1) is Verdict.COOLDOWN
    assert selection.unfitness(need, worker(), now_ms=T0) is None


def claim_fault(court: Court, who: Author, kind: str = "render.frame") -> Verdict | None:
    control = court.ledger.history.current
    return selection.claim_fault(
        control, ChainChoice(who.did), did=who.did, kind=kind, job_id=JOB, now_ms=T0
    )


def test_a_worker_counts_only_with_a_chain_that_admits_the_claim():
    court = Court()
    assert claim_fault(court, ALICE) is Verdict.NO_CHAIN
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    assert claim_fault(court, ALICE) is None
    assert claim_fault(court, ALICE, kind="build") is Verdict.POLICY
    assert claim_fault(court, BOB) is Verdict.NO_CHAIN


@pytest.mark.req("M13")
def test_a_worker_counts_only_where_the_route_leads_to_it():
    court = Court()
    court.grant(OWNER, ALICE, cmd="/job/claim", pol=RENDER)
    court.grant(OWNER, CAROL)
    court.grant(CAROL, BOB, subject=None)
    assert court.ledger.route("render", ALICE) is Verdict.OK
    assert claim_fault(court, ALICE) is None
    assert claim_fault(court, BOB) is Verdict.NOT_ROUTED
    assert court.ledger.route("render", CAROL) is Verdict.OK
    assert claim_fault(court, ALICE) is Verdict.NOT_ROUTED
    assert claim_fault(court, BOB) is None, "it acts for the machine that passes all on to it"


def test_the_longest_prefix_decides_and_particular_jobs_are_always_drawn_for():
    rules = Rules(selection=(("render", "rendezvous"), ("render.preview", "queue")))
    ledger = Ledger(selection=rules.selection)
    control = ledger.history.current
    assert selection.method(control, "build") == "queue"
    assert selection.method(control, "render.frame") == "rendezvous"
    assert selection.method(control, "render.preview.small") == "queue"
    assert selection.method(control, "rendering") == "queue"
    assert selection.method(control, "build", requires=("gpu",)) == "rendezvous"


@pytest.mark.req("G11")
@pytest.mark.parametrize("known", [0, 1, 10, 200])
def test_deciding_costs_one_hash_for_each_known_worker(known, monkeypatch):
    drawn = []
    really_draw = selection.draw
    monkeypatch.setattr(
        selection, "draw", lambda *texts: drawn.append(texts) or really_draw(*texts)
    )
    others = [worker(f"did:key:z6Mk{number:044d}") for number in range(known)]
    selection.rank_of(NEED, worker(), others)
    assert len(drawn) <= known + 1
    assert len(set(drawn)) == len(drawn)
