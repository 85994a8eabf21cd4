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
