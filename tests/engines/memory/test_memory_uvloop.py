"""The memory engine under uvloop, whose timers that are due at once do not say when."""

import pytest

from antiphon.engines.memory import MemoryEngine, MemoryServer
from antiphon.runtime.identity.host_clock import SystemClock

MESH = "z6Mkmesh"


def test_jobs_that_were_handed_back_come_again():
    uvloop = pytest.importorskip("uvloop")

    async def story() -> list[int]:
        engine = MemoryEngine(MemoryServer(SystemClock()), MESH)
        subject = f"ap.{MESH}.jobs.1.a.b"
        async with engine.log.work(f"ap.{MESH}.jobs.1.a.*", name="w") as queue:
            for number in range(2):
                await engine.log.append(
                    f"{subject}{number}", b"x", message_id=f"{number}", expected_last=0
                )
            queue.grant(2)
            for _ in range(2):
                (await queue.next()).nak(1e-9)
            queue.grant(2)
            return [(await queue.next()).deliveries for _ in range(2)]

    assert uvloop.run(story()) == [2, 2]
