"""How the features of rows G1 to G11 are taken out: claim resolution."""

from hashlib import sha256
from typing import Any

from tests.breaks.replacement import Break, around, calls, does_nothing, gives

SELECTION = "antiphon.core.policy.selection"
PRESENCE = "antiphon.runtime.presence.worker_presence:WorkerPresence"


def dearly(old: Any, need: Any, me: Any, others: Any) -> Any:
    """A rank that is computed twice."""
    known = list(others)
    old(need, me, known)
    return old(need, me, known)


BREAKS = {
    "G1": (
        Break(f"{SELECTION}:draw", around(lambda old, *of: old(*of)[::-1]), "draws are others"),
        Break(f"{PRESENCE}.places", gives((0, 0)), "every worker claims at once"),
    ),
    "G2": (Break(f"{SELECTION}:seed_of", gives(bytes(32)), "all jobs have one seed"),),
    "G3": (Break(f"{SELECTION}:rank_of", gives(1), "a worker alone waits for others"),),
    "G4": (
        Break(
            f"{SELECTION}:draw",
            calls(lambda _job, _seed, worker: sha256(worker.encode()).digest()),
            "one worker wins every job",
        ),
    ),
    "G5": (
        Break(
            f"{SELECTION}:draw",
            calls(lambda job, _seed, worker: sha256((job + worker).encode()).digest()),
            "who wins a job follows from its content",
        ),
    ),
    "G6": (
        Break(f"{PRESENCE}.took", does_nothing, "nobody hears what was taken"),
        Break(f"{PRESENCE}._note", does_nothing, "no worker knows another"),
    ),
    "G7": (
        Break(
            "antiphon.core.families.jobs.table:_holder_fault",
            gives(None),
            "a worker that lost its lease ends the job",
        ),
    ),
    "G8": (Break(f"{SELECTION}:is_earlier", gives(False), "the claim heard first stands"),),
    "G9": (
        Break(f"{SELECTION}:score", around(lambda old, lot, _: old(lot, 1)), "weights are ignored"),
    ),
    "G10": (
        Break(
            "antiphon.runtime.node.overdue_jobs:OverdueJobs._expire",
            gives(False),
            "a vanished worker keeps its job",
        ),
        Break(
            "antiphon.core.policy.rendezvous_turns:Call.due_s",
            calls(lambda self, _: 0.0 if self.rank == 0 else 2.0**50),
            "only the first in the draw claims",
        ),
    ),
    "G11": (Break(f"{SELECTION}:rank_of", around(dearly), "deciding costs two hashes for each"),),
}
