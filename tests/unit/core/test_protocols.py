"""What a later protocol reads, an earlier one refuses: recorded logs keep their verdicts."""

import msgspec
import pytest

from antiphon.core import ops
from antiphon.core.manifest import job_id
from antiphon.core.reasons import Reason
from tests.unit.core.ledger import OWNER, T0, Ledger, Story


@pytest.mark.parametrize(
    "asked", [{"outputs": ("*.txt",)}, {"outputs": ()}, {"secrets": ("token",)}, {"network": True}]
)
def test_what_a_command_asks_for_is_read_from_protocol_two_on(asked):
    for protocol, verdict in ((1, Reason.MALFORMED), (2, Reason.OK)):
        story = Story(protocol=protocol)
        story.manifest = msgspec.structs.replace(story.manifest, **asked)
        assert story.schedule() is verdict


def test_what_is_wrong_anyway_stays_so_under_both():
    for protocol, verdict in ((1, Reason.MALFORMED), (2, Reason.SUBJECT)):
        ledger = Ledger(protocol=protocol)
        story = Story(ledger)
        content = msgspec.structs.replace(story.manifest, network=True)
        body = ops.ScheduleBody(kind="render", manifest=content)
        draft = ledger.draft(ops.JobSchedule, body, OWNER)
        assert ledger.append(f"{draft.subject[:-64]}{'0' * 64}", draft.payload, stamp=10) is verdict


def two_kinds(protocol):
    """A ledger with one job of each of two kinds: records 2 and 3."""
    ledger = Ledger(protocol=protocol)
    ours, theirs = Story(ledger, kind="render"), Story(ledger, kind="build", word="make")
    assert ours.schedule() is theirs.schedule() is Reason.OK
    return ledger, ours


@pytest.mark.req("M18")
def test_an_op_about_a_job_names_nothing_of_another_kind():
    ledger, ours = two_kinds(2)
    assert ours.claim(deps=(ledger.dep(3),)) is Reason.MISSING_DEP


@pytest.mark.req("M18")
def test_a_control_op_names_control_records_only():
    ledger, _ = two_kinds(2)
    body = ops.RouteBody(kind="render", target=OWNER.did)
    assert ledger.put(ops.MeshRoute, body, OWNER, deps=(ledger.dep(2),)) is Reason.MISSING_DEP
    again = ops.RouteBody(kind="render.video", target=OWNER.did)
    assert ledger.put(ops.MeshRoute, again, OWNER, deps=(ledger.dep(1),)) is Reason.OK


@pytest.mark.req("M18")
def test_what_readers_of_a_kind_share_may_be_named():
    ledger, ours = two_kinds(2)
    sibling = Story(ledger, kind="render", word="false")
    assert sibling.schedule() is Reason.OK
    assert ours.claim(deps=(ledger.dep(1), ledger.dep(2), ledger.dep(4))) is Reason.OK


@pytest.mark.parametrize(
    "protocol, timeout, bound_ms",
    [(2, 30, 30_000 + 120_000), (2, 0, None), (1, 30, None)],
    ids=["its timeout and a lease", "no timeout", "protocol 1"],
)
def test_a_tenure_is_renewed_for_as_long_as_an_attempt_may_take(protocol, timeout, bound_ms):
    story = Story(protocol=protocol, lease_max_ms=120_000)
    story.manifest = msgspec.structs.replace(story.manifest, timeout=timeout)
    story.id = job_id(story.manifest)
    assert story.schedule(how={"at": 10}) is Reason.OK
    assert story.claim(at=20, lease_ms=100_000) is Reason.OK
    for at in range(50_020, 1_000_020, 50_000):
        is_over = bound_ms is not None and at - 20 > bound_ms
        verdict = story.claim(at=at, lease_ms=100_000, fence=story.fence)
        assert verdict is (Reason.LEASE_OVER if is_over else Reason.OK)
        if is_over:
            assert story.expire(at=story.job.deadline_ms - T0 + 1) is Reason.OK
            return
    assert bound_ms is None
