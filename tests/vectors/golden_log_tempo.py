"""The golden log's tempo and checkpoints. Bob owns the mesh by now, Carol coordinates."""

from antiphon.core.families.jobs.ops import Checkpoint
from antiphon.core.families.mesh.ops import MeshTempo, TempoBody
from antiphon.core.record.ids import digest
from antiphon.core.tempo.policy import TempoLimits, TempoPolicy
from tests.core.authors import ALICE, BOB, CAROL
from tests.core.ledger import Ledger, Story

START = 10 * 86_400_000
ONE, TWO = (Checkpoint(hash=digest(raw), size=len(raw)) for raw in (b"half", b"three quarters"))


def story(ledger: Ledger) -> None:
    """A policy, refused and accepted; a job that goes on from its checkpoint."""
    slow = TempoPolicy(initial_bpm=4, limits=TempoLimits(min_bpm=6))
    ledger.put(MeshTempo, TempoBody(policy=slow), BOB, at=START)  # tempo
    ledger.put(MeshTempo, TempoBody(policy=TempoPolicy(initial_bpm=12)), ALICE, at=START)
    ledger.put(MeshTempo, TempoBody(policy=TempoPolicy(initial_bpm=12)), BOB, at=START + 10)
    long = Story(ledger, word="long")
    long.schedule(BOB, how={"at": START + 20})
    long.claim(BOB, checkpoint=ONE, at=START + 30)  # checkpoint
    long.claim(BOB, begin=True, at=START + 40)
    long.claim(BOB, fence=long.fence, checkpoint=ONE, at=START + 50)
    long.evict(ONE.hash, CAROL, at=START + 60)  # not_ended
    long.give_back(BOB, reason="overrun", checkpoint=TWO, at=START + 70)
    long.evict(ONE.hash, CAROL, at=START + 80)
    long.evict(ONE.hash, CAROL, at=START + 90)  # already
    long.claim(BOB, begin=True, at=START + 100)
    long.give_back(BOB, reason="later", retry_after_ms=1_000, at=START + 110)
