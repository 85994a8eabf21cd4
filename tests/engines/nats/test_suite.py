"""The NATS engine against the suite that every engine passes."""

import pytest

from antiphon.testing import engine_suite as suite
from tests.engines.nats.harness import nats

pytestmark = pytest.mark.nats


class TestAppend(suite.AppendSuite):
    harness = staticmethod(nats)


class TestMessageId(suite.MessageIdSuite):
    harness = staticmethod(nats)


class TestRead(suite.ReadSuite):
    harness = staticmethod(nats)


class TestLane(suite.LaneSuite):
    harness = staticmethod(nats)


class TestConfirm(suite.ConfirmSuite):
    harness = staticmethod(nats)


class TestPurge(suite.PurgeSuite):
    harness = staticmethod(nats)


class TestFollow(suite.FollowSuite):
    harness = staticmethod(nats)


class TestQueue(suite.QueueSuite):
    harness = staticmethod(nats)


class TestSettle(suite.SettleSuite):
    harness = staticmethod(nats)


class TestLease(suite.LeaseSuite):
    harness = staticmethod(nats)


class TestBus(suite.BusSuite):
    harness = staticmethod(nats)


class TestBlob(suite.BlobSuite):
    harness = staticmethod(nats)


class TestLife(suite.LifeSuite):
    harness = staticmethod(nats)


class TestOutage(suite.OutageSuite):
    harness = staticmethod(nats)


class TestRestore(suite.RestoreSuite):
    harness = staticmethod(nats)
