"""The bus's subjects: each stands in the table once."""

import re

import pytest

from antiphon.core import subjects
from antiphon.core.bus_subjects import BUS, CARE, INBOX, JOIN, LIVE, LOGIN, ROLL, WORK


@pytest.mark.parametrize(
    "subject, parts, where",
    [
        (ROLL, {}, "roll"),
        (CARE, {}, "care"),
        (WORK, {"kind": "render.video"}, "work.render.video"),
        (LIVE, {"kind": "render.video", "job": "1"}, "live.render.video.1"),
        (INBOX, {"user": "U", "place": 7}, "inbox.U.7"),
        (JOIN, {"user": "T"}, "gate.T.join"),
        (LOGIN, {"user": "*"}, "gate.*.login"),
    ],
)
def test_subjects_are_built_from_the_table(subject, parts, where):
    assert subject.at(**parts) == where
    assert subject in BUS


def test_no_message_belongs_to_two_subjects():
    patterns = [re.sub(r"\{(\w+)\}", "*", one.pattern) for one in BUS]
    for at, pattern in enumerate(patterns):
        assert not any(subjects.matches(other, pattern) for other in patterns[:at])
