"""What a later protocol reads, an earlier one refuses: recorded logs keep their verdicts."""

import msgspec
import pytest

from antiphon.core import ops
from antiphon.core.reasons import Reason
from tests.unit.core.ledger import OWNER, Ledger, Story


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
@pytest.mark.parametrize("protocol, verdict", [(1, Reason.OK), (2, Reason.MISSING_DEP)])
def test_an_op_about_a_job_names_nothing_of_another_kind_from_protocol_two_on(protocol, verdict):
    ledger, ours = two_kinds(protocol)
    assert ours.claim(deps=(ledger.dep(3),)) is verdict


@pytest.mark.req("M18")
@pytest.mark.parametrize("protocol, verdict", [(1, Reason.OK), (2, Reason.MISSING_DEP)])
def test_a_control_op_names_control_records_only_from_protocol_two_on(protocol, verdict):
    ledger, _ = two_kinds(protocol)
    body = ops.RouteBody(kind="render", target=OWNER.did)
    assert ledger.put(ops.MeshRoute, body, OWNER, deps=(ledger.dep(2),)) is verdict
    again = ops.RouteBody(kind="render.video", target=OWNER.did)
    assert ledger.put(ops.MeshRoute, again, OWNER, deps=(ledger.dep(1),)) is Reason.OK


@pytest.mark.req("M18")
def test_what_readers_of_a_kind_share_may_be_named():
    ledger, ours = two_kinds(2)
    sibling = Story(ledger, kind="render", word="false")
    assert sibling.schedule() is Reason.OK
    assert ours.claim(deps=(ledger.dep(1), ledger.dep(2), ledger.dep(4))) is Reason.OK
