"""What a node keeps of the tempo: what it heard, and what it missed."""

import pytest

from antiphon.core.bus.signed_message import Message
from antiphon.core.tempo.policy import DEFAULT_POLICY
from antiphon.core.tempo.pulse_state import beat_frame, begun, on_downbeat
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.tempo.beat_clock import BeatClock
from antiphon.runtime.tempo.pulse_lease import PulseLease
from antiphon.runtime.tempo.tempo_record import TempoRecord
from tests.runtime.meshes import a_mesh
from tests.runtime.tempo.test_pulse import BRISK

BAR_MS = 32_000


@pytest.mark.req("B18")
async def test_a_node_that_was_off_learns_what_leaders_changed_meanwhile():
    async with a_mesh("memory") as mesh:
        session = (await mesh.connection(mesh.owner)).session
        first = begun(DEFAULT_POLICY, at_ms=BAR_MS)
        second = on_downbeat(first, BRISK, None, 2 * BAR_MS)
        third = on_downbeat(second, DEFAULT_POLICY, None, 3 * BAR_MS)
        lease = PulseLease(session)
        await lease.take(1_000)
        await lease.keep(third)
        replica = Replica(":memory:", mesh=session.mesh)
        record, clock = TempoRecord(session, replica.tempo), BeatClock(session)
        at_ms = 3 * BAR_MS + 5_000
        frame = beat_frame(session.mesh, third, DEFAULT_POLICY, at_ms=at_ms, hlc=(1, 0), revision=7)
        heard = Message(mesh=session.mesh, subject="", signers=("x",), at_ms=at_ms, body=frame)
        with record.watching(clock):
            for watcher in clock.watchers:
                watcher(heard)
        assert clock.watchers == []
        assert [one.from_ms for one in replica.tempo.spans()] == [3 * BAR_MS]
        await record.complete()
        assert replica.tempo.spans() == [first.span, second.span, third.span]
        assert TempoRecord(session, replica.tempo)._last == third.span
        replica.close()
