"""The conformance suite: what `antiphon.ports` means, as tests that any engine can run.

Bring a harness and subclass what your engine offers; pytest collects the rest:

    class TestMyLog(AppendSuite):
        harness = my_harness  # a HarnessFactory, wrapped in staticmethod if it is a function

The tests are coroutines without fixtures. They need a plugin or hook that runs coroutine tests.
"""

from antiphon.testing.engine_suite.append import AppendManySuite, AppendSuite, MessageIdSuite
from antiphon.testing.engine_suite.artifacts import BlobSuite
from antiphon.testing.engine_suite.connections import LifeSuite
from antiphon.testing.engine_suite.follow import FollowSuite
from antiphon.testing.engine_suite.harness import EngineSuite, Harness, HarnessFactory, Site
from antiphon.testing.engine_suite.keys import LeaseSuite
from antiphon.testing.engine_suite.many import HintSuite, ManyLanesSuite
from antiphon.testing.engine_suite.messages import BusSuite
from antiphon.testing.engine_suite.outages import OutageSuite, RestoreSuite
from antiphon.testing.engine_suite.queues import QueueSuite, SettleSuite
from antiphon.testing.engine_suite.reads import ConfirmSuite, LaneSuite, PurgeSuite, ReadSuite
from antiphon.testing.engine_suite.registers import MessageSuite

__all__ = [
    "AppendManySuite",
    "AppendSuite",
    "BlobSuite",
    "BusSuite",
    "ConfirmSuite",
    "EngineSuite",
    "FollowSuite",
    "Harness",
    "HarnessFactory",
    "HintSuite",
    "LaneSuite",
    "LeaseSuite",
    "LifeSuite",
    "ManyLanesSuite",
    "MessageIdSuite",
    "MessageSuite",
    "OutageSuite",
    "PurgeSuite",
    "QueueSuite",
    "ReadSuite",
    "RestoreSuite",
    "SettleSuite",
    "Site",
]
