"""The golden log's plans: put, derived from, refused, dropped. Bob owns the mesh by now."""

from antiphon.core.families.jobs.derivation import Cause, Cron, Reaction, Tick
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.planned import PlanBody, derived_body
from antiphon.core.families.plans.ops import DropBody, PlanDrop, PlanPut
from antiphon.core.families.plans.state import plan_key
from tests.core.authors import ALICE, BOB, CAROL
from tests.core.ledger import T0, Ledger, manifest

START = 9 * 86_400_000


def plan_story(ledger: Ledger) -> None:
    """A cron plan and a reaction, by the owner; Carol derives."""
    ledger.coordinator(CAROL, BOB, at=START)
    kind = "report.daily"
    cron = Cron(at="0 3 * * *", zone="Europe/Berlin", missed="skip", from_ms=T0 + START)
    nightly = PlanBody(kind=kind, name="nightly", manifest=manifest("night"), trigger=cron)
    after = PlanBody(
        kind=kind,
        name="built",
        manifest=manifest("built"),
        priority="low",
        trigger=Reaction(on="succeeded", kinds="build.*"),
    )
    itself = PlanBody(
        kind=kind, name="loop", manifest=manifest(), trigger=Reaction(on="ended", kinds="*")
    )
    ledger.put(PlanPut, itself, BOB, at=START + 10)  # plan
    ledger.put(PlanPut, nightly, ALICE, at=START + 20)  # no_chain
    ledger.put(PlanPut, nightly, BOB, at=START + 30)
    ledger.put(PlanPut, nightly, BOB, at=START + 40)  # already
    ledger.put(PlanPut, after, BOB, at=START + 50)

    def derive(name, derived, by=CAROL, *, at) -> None:
        plan = ledger.reader.all_lanes[plan_key(kind, name)].state
        body = derived_body(plan.body, plan.op_id, derived)
        ledger.put(JobSchedule, body, by, deps=((plan.put_seq, plan.op_id),), at=START + at)

    derive("nightly", Tick(tick_ms=T0 + START + 1_000), at=900)  # early
    derive("nightly", Tick(tick_ms=T0 + START + 1_000), BOB, at=1_000)  # not_coordinator
    derive("nightly", Tick(tick_ms=T0 + START + 1_000), at=1_010)
    derive("nightly", Tick(tick_ms=T0 + START + 1_000), at=1_020)  # exists
    derive("nightly", Tick(tick_ms=T0 + START + 30), at=1_030)  # derived: before it was put
    derive("built", Tick(tick_ms=T0 + START + 1_000), at=1_040)  # derived: it is a reaction
    derive(
        "built", Cause(kind="build.image", job="ab" * 32, ended_ms=T0 + 1_040, depth=2), at=1_050
    )
    derive(
        "built", Cause(kind="test.unit", job="ab" * 32, ended_ms=T0 + 1_040), at=1_060
    )  # derived
    ledger.put(PlanDrop, DropBody(kind=kind, name="nightly"), BOB, at=START + 1_070)
    ledger.put(PlanDrop, DropBody(kind=kind, name="nightly"), BOB, at=START + 1_080)  # already
    ledger.put(PlanDrop, DropBody(kind=kind, name="gone"), BOB, at=START + 1_090)  # no_job


STORIES = (plan_story,)
