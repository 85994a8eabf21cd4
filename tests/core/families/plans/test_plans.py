"""Plans, and the jobs that follow from them (spec §7.4)."""

import pytest
from msgspec.structs import replace

from antiphon.core.clock.hlc import MAX_WALL
from antiphon.core.families.jobs.derivation import MAX_DEPTH, Cause, Cron, Reaction, Tick
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import PlanBody, derived_body
from antiphon.core.families.plans import PLANS
from antiphon.core.families.plans.ops import DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.state import plan_key
from antiphon.core.manifest import MAX_INPUTS, author, job_id, with_nonce
from antiphon.core.record.ids import digest
from antiphon.core.record.verdict import Verdict
from tests.core.authority.test_chain_check import Court
from tests.core.authors import ALICE, BOB, CAROL, OWNER
from tests.core.ledger import T0, Ledger, manifest, open_stored

pytestmark = pytest.mark.req("P13")
OK = Verdict.OK
KIND, NAME = "report.daily", "nightly"
CRON = Cron(at="0 3 * * *", zone="Europe/Berlin")
REACTION = Reaction(on="succeeded", kinds="build.*")
BUILD = Cause(kind="build.image", job="ab" * 32, ended_ms=T0)


def body(trigger=CRON, **fields) -> PlanBody:
    return PlanBody(
        **{"kind": KIND, "name": NAME, "manifest": manifest(), "trigger": trigger, **fields}
    )


class Planner:
    """A plan on a ledger, and what is derived from it; Carol coordinates."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self.ledger = ledger or Ledger()
        assert self.ledger.coordinator(CAROL) is OK

    @property
    def plan(self):
        return self.ledger.reader.all_lanes[plan_key(KIND, NAME)].state

    def put(self, by=ALICE, what=None, **how) -> Verdict:
        return self.ledger.put(PlanPut, body() if what is None else what, by, **how)

    def drop(self, by=ALICE, **how) -> Verdict:
        return self.ledger.put(PlanDrop, DropBody(kind=KIND, name=NAME), by, **how)

    def derive(self, derived, by=CAROL, *, changed=None, deps=None, **how) -> Verdict:
        """Submit what follows from the plan, `changed` in some fields."""
        seq = self.plan.put_seq
        schedule = derived_body(self.plan.body, self.plan.op_id, derived)
        schedule = replace(schedule, **(changed or {}))
        named = (self.ledger.dep(seq),) if deps is None else deps
        return self.ledger.put(JobSchedule, schedule, by, deps=named, **how)

    def job(self, derived):
        id_ = job_id(derived_body(self.plan.body, self.plan.op_id, derived).manifest)
        lane = self.ledger.reader.lanes.get((KIND, id_))
        return lane and lane.job


def ticking(**how) -> Planner:
    planner = Planner()
    assert planner.put(at=1_000, **how) is OK
    return planner


def tick(at: int) -> Tick:
    return Tick(tick_ms=T0 + at)


def test_the_last_accepted_put_stands_until_a_drop():
    planner = ticking()
    first = planner.plan
    assert planner.put() is Verdict.ALREADY
    assert planner.plan == first
    assert planner.put(BOB) is OK
    assert planner.plan.author == BOB.did
    assert planner.put(BOB, body(priority="low")) is OK
    assert planner.plan.body.priority == "low"
    assert planner.drop() is OK
    assert planner.plan.is_dropped
    assert planner.drop() is Verdict.ALREADY
    assert planner.put() is OK
    assert not planner.plan.is_dropped


def test_a_plan_follows_from_its_last_put_and_what_comes_after():
    planner = ticking()
    assert planner.put(BOB, body(priority="low")) is OK
    standing, (record, opened) = planner.plan, last_opened(planner.ledger)
    assert PLANS.entry(standing) == record.seq
    assert PLANS.enter(opened.op, opened.seq, opened.op_id) == standing
    assert planner.drop() is OK
    assert PLANS.entry(planner.plan) == record.seq
    _, dropped = last_opened(planner.ledger)
    assert PLANS.enter(dropped.op, dropped.seq, dropped.op_id) is None
    lane = PLANS.lane((record.seq,), standing)
    after = planner.ledger.history.settle(lane, dropped, lambda _: None).lane
    assert after == planner.ledger.reader.all_lanes[plan_key(KIND, NAME)]


def last_opened(ledger: Ledger):
    record = ledger.log[-1]
    return record, open_stored(ledger.mesh, record)


def test_what_was_never_put_cannot_be_dropped():
    assert Planner().drop() is Verdict.NO_JOB


@pytest.mark.parametrize(
    "what",
    [
        body(Reaction(on="failed", kinds=KIND)),
        body(Reaction(on="failed", kinds="report.*")),
        body(Reaction(on="ended", kinds="*")),
        body(Reaction(on="failed", kinds="build.*", result="cause")),
        body(Reaction(on="succeeded", kinds="build.*", output="app.tar")),
        body(start_by=T0 + 5_000),
        body(not_before=T0 + 5_000),
        body(retry_of="ab" * 32),
        body(derived=Tick(tick_ms=T0)),
    ],
)
def test_a_plan_that_would_trigger_itself_or_has_a_single_jobs_times_is_refused(what):
    assert Planner().put(what=what) is Verdict.PLAN


def test_a_derived_job_reads_the_output_of_its_cause_that_the_plan_names():
    trigger = Reaction(on="succeeded", kinds="build.*", result="app.tar", output="dist/app.tar")
    planner = ticking(what=body(trigger))
    assert planner.derive(BUILD) is OK
    schedule = derived_body(planner.plan.body, planner.plan.op_id, BUILD)
    read = schedule.manifest.inputs[-1]
    assert (read.of, read.name, read.output) == (
        ("build.image", BUILD.job),
        "app.tar",
        "dist/app.tar",
    )
    assert planner.derive(BUILD, changed={"manifest": manifest()}) is Verdict.DERIVED


@pytest.mark.parametrize("from_ms", [MAX_WALL, T0 + 11 * 366 * 24 * 3_600_000])
def test_a_plan_begins_within_ten_years(from_ms):
    late = Cron(at="0 3 * * *", zone="UTC", from_ms=from_ms)
    assert Planner().put(what=body(late)) is Verdict.DELAY
    soon = Cron(at="0 3 * * *", zone="UTC", from_ms=T0 + 366 * 24 * 3_600_000)
    assert Planner().put(what=body(soon)) is OK


def padded(size: int):
    """A manifest with so many bytes of arguments."""
    words = ["x" * 4_096] * (size // 4_096)
    return author({"command": ["true"], "args": words, "timeout": 1})


def test_a_plan_leaves_room_for_what_a_derived_job_adds():
    """Else its jobs could not be written, at every tick again."""
    assert Planner().put(what=body(manifest=padded(240_000))) is OK
    assert Planner().put(what=body(manifest=padded(258_048))) is Verdict.PLAN
    many = [{"kind": "nonce", "nonce": f"{n:032x}"} for n in range(MAX_INPUTS)]
    full = author({"command": ["true"], "timeout": 1, "inputs": many})
    assert Planner().put(what=body(manifest=full)) is Verdict.PLAN


def test_a_derived_job_is_the_plans_and_its_author_may_cancel_it():
    planner = Planner()
    assert planner.put(what=body(priority="high", requires=("gpu",)), at=1_000) is OK
    assert planner.derive(tick(5_000), at=6_000) is OK
    job = planner.job(tick(5_000))
    assert (job.scheduler, job.priority, job.plan) == (ALICE.did, "high", planner.plan.op_id)
    assert job.derived == tick(5_000)


def test_whoever_coordinates_derives_the_same_job_so_it_is_submitted_once():
    planner = ticking()
    assert planner.derive(tick(5_000), at=6_000) is OK
    assert planner.ledger.coordinator(BOB) is OK
    assert planner.derive(tick(5_000), BOB) is Verdict.EXISTS
    assert planner.derive(tick(7_000), BOB, at=8_000) is OK
    assert planner.job(tick(5_000)).id != planner.job(tick(7_000)).id


@pytest.mark.parametrize("by", [ALICE, OWNER], ids=["the plan's author", "the owner"])
@pytest.mark.parametrize("rules", [{}, {"authority": "chain"}], ids=["open", "chain"])
def test_only_the_coordinator_derives(by, rules):
    planner = Planner(Ledger(**rules))
    assert planner.put(OWNER, at=1_000) is OK
    assert planner.derive(tick(5_000), by, at=6_000) is Verdict.NOT_COORDINATOR
    assert planner.derive(tick(5_000)) is OK


@pytest.mark.parametrize(
    "at, stamp, verdict",
    [(4_999, 5_000, Verdict.EARLY), (5_000, 4_999, Verdict.EARLY), (5_000, 5_000, OK)],
)
def test_a_tick_is_not_derived_before_both_clocks_have_reached_it(at, stamp, verdict):
    assert ticking().derive(tick(5_000), at=at, stamp=stamp) is verdict


def test_no_tick_counts_up_to_the_put_or_up_to_the_time_that_the_plan_names():
    planner = ticking()
    assert planner.derive(tick(1_000), at=6_000) is Verdict.DERIVED
    assert planner.derive(tick(1_001), at=6_010) is OK
    later = Planner()
    what = body(replace(CRON, from_ms=T0 + 4_000))
    assert later.put(what=what, at=1_000) is OK
    assert later.derive(tick(4_000), at=6_000) is Verdict.DERIVED
    assert later.derive(tick(4_001), at=6_010) is OK


@pytest.mark.parametrize(
    "changed",
    [
        {"manifest": manifest("other")},
        {"manifest": manifest()},
        {"manifest": with_nonce(manifest(), "0" * 16, "key")},
        {"priority": "high"},
        {"lease_ms": 60_000},
        {"requires": ("gpu",)},
        {"concurrency": "gpu"},
    ],
)
def test_a_derived_job_is_exactly_what_the_plan_says(changed):
    assert ticking().derive(tick(5_000), changed=changed, at=6_000) is Verdict.DERIVED


def test_a_derived_job_names_its_plan_and_no_other_record():
    planner = ticking()
    ledger = planner.ledger
    assert planner.derive(tick(5_000), deps=(), at=6_000) is Verdict.DERIVED
    assert planner.derive(tick(5_000), deps=(ledger.dep(1),)) is Verdict.DERIVED
    job = ledger.dep(len(ledger.log))
    assert planner.derive(tick(5_000), deps=(job,)) is Verdict.DERIVED
    wrong = (planner.plan.put_seq, digest(b"another"))
    assert planner.derive(tick(5_000), deps=(wrong,)) is Verdict.MISSING_DEP


def test_a_plan_that_its_author_did_not_sign_is_no_plan():
    planner = ticking()
    stranger = planner.ledger.draft(PlanPut, body(priority="low"), ALICE)
    forged = planner.ledger.draft(PlanPut, body(priority="low"), BOB)
    block = forged.payload[len(forged.op_bytes) :]
    ledger = planner.ledger
    assert ledger.append(stranger.subject, stranger.op_bytes + block, stamp=2_000) is (
        Verdict.SIGNATURE
    )
    schedule = derived_body(stranger.op.body, stranger.op_id, tick(5_000))
    named = ((len(ledger.log), stranger.op_id),)
    assert ledger.put(JobSchedule, schedule, CAROL, deps=named, at=6_000) is Verdict.DERIVED


def reacting() -> Planner:
    planner = Planner()
    assert planner.put(what=body(REACTION), at=1_000) is OK
    return planner


def test_a_reaction_follows_from_a_job_of_its_kinds():
    planner = reacting()
    assert planner.derive(BUILD) is OK
    assert planner.derive(BUILD) is Verdict.EXISTS
    assert planner.derive(replace(BUILD, job="cd" * 32)) is OK
    assert planner.derive(replace(BUILD, kind="build")) is Verdict.DERIVED
    assert planner.derive(replace(BUILD, kind="deploy.site")) is Verdict.DERIVED
    assert planner.derive(tick(5_000), at=6_000) is Verdict.DERIVED
    assert ticking().derive(BUILD) is Verdict.DERIVED


def test_the_depth_of_a_reaction_is_no_part_of_its_id_and_is_bounded():
    planner = reacting()
    assert planner.derive(replace(BUILD, depth=MAX_DEPTH)) is OK
    assert planner.job(BUILD).derived.depth == MAX_DEPTH
    too_deep = replace(BUILD, job="cd" * 32, depth=MAX_DEPTH + 1)
    assert planner.derive(too_deep) is Verdict.MALFORMED


REPORTS = [["like", ".kind", "report.*"]]


class TestAuthority:
    """A plan fires by its author's right, at each tick anew."""

    def planned(self, **terms):
        court = Court()
        planner = Planner(court.ledger)
        cid = court.grant(OWNER, ALICE, cmd="/job/schedule", **{"pol": REPORTS, **terms})
        return court, planner, cid

    def test_a_plan_needs_the_right_to_submit_its_kind(self):
        _, planner, cid = self.planned()
        assert planner.put(BOB) is Verdict.NO_CHAIN
        other = body(kind="build.image")
        assert planner.put(what=other, auth=(cid,)) is Verdict.POLICY
        assert planner.put(auth=(cid,)) is OK
        assert planner.drop(BOB) is Verdict.NO_CHAIN
        assert planner.drop(auth=(cid,)) is OK

    def test_policies_about_a_schedules_fields_hold_for_plans(self):
        low = [["==", ".priority", "low"]]
        _, planner, cid = self.planned(pol=low)
        assert planner.put(auth=(cid,)) is Verdict.POLICY
        assert planner.put(what=body(priority="low"), auth=(cid,)) is OK

    def test_the_coordinator_needs_no_right_of_its_own(self):
        _, planner, cid = self.planned()
        assert planner.put(auth=(cid,), at=1_000) is OK
        assert planner.derive(tick(5_000), at=6_000) is OK
        assert planner.job(tick(5_000)).call_auth == (cid,)

    def test_it_fires_no_more_once_the_chain_is_revoked(self):
        court, planner, cid = self.planned()
        assert planner.put(auth=(cid,), at=1_000) is OK
        assert court.revoke(cid, OWNER) is OK
        assert planner.derive(tick(5_000), at=6_000) is Verdict.REVOKED

    def test_it_fires_no_more_once_the_chain_has_expired(self):
        _, planner, cid = self.planned(until_ms=5_000)
        assert planner.put(auth=(cid,), at=1_000) is OK
        assert planner.derive(tick(4_000), at=4_500) is OK
        assert planner.derive(tick(8_000), at=9_000) is Verdict.CHAIN_EXPIRED

    def test_the_owners_plan_needs_no_chain(self):
        _, planner, _ = self.planned()
        assert planner.put(OWNER, at=1_000) is OK
        assert planner.derive(tick(5_000), at=6_000) is OK

    def test_a_plan_without_a_chain_counts_for_nothing(self):
        _, planner, cid = self.planned()
        assert planner.put(auth=(cid,), at=1_000) is OK
        refused = planner.ledger.draft(PlanPut, body(priority="low"), BOB)
        assert planner.ledger.commit(refused) is Verdict.NO_CHAIN
        schedule = derived_body(refused.op.body, refused.op_id, tick(5_000))
        named = ((len(planner.ledger.log), refused.op_id),)
        verdict = planner.ledger.put(JobSchedule, schedule, CAROL, deps=named, at=6_000)
        assert verdict is Verdict.NO_CHAIN
