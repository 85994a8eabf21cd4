"""What is stored outside the log for a job: outputs, what its runs stored, arguments, results.

An ended job's content can be evicted, and before that, checkpoints that newer ones replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.core.families.jobs import ops
from antiphon.core.families.jobs.state import Job
from antiphon.core.record.verdict import Verdict

if TYPE_CHECKING:
    from antiphon.core.family import At
    from antiphon.core.proof.output import Output


def stored(outputs: tuple[Output, ...]) -> tuple[str, ...]:
    """The digests of outputs that do not travel as text, each once."""
    return tuple(dict.fromkeys(one.stored.hash for one in outputs if one.stored is not None))


def saved(job: Job) -> tuple[str, ...]:
    """The digests of all that its runs have stored before its end, and that is still kept."""
    last = (job.checkpoint.hash,) if job.checkpoint is not None else ()
    made = job.artifacts.outside if job.artifacts is not None else ()
    return (*job.replaced, *last, *made)


def with_checkpoint(job: Job, checkpoint: ops.Checkpoint | None) -> Job | Verdict:
    """The job with a newer checkpoint; those before are kept until somebody evicts them."""
    if checkpoint is None or checkpoint == job.checkpoint:
        return job
    before = (job.checkpoint.hash,) if job.checkpoint is not None else ()
    replaced = tuple(one for one in (*job.replaced, *before) if one != checkpoint.hash)
    if len(replaced) > ops.MAX_REPLACED:
        return Verdict.CHECKPOINT
    forgotten = tuple(one for one in job.forgotten if one != checkpoint.hash)
    return replace(job, checkpoint=checkpoint, replaced=replaced, forgotten=forgotten)


def to_evict(job: Job) -> tuple[str, ...]:
    """What is kept for an ended job alone, or might be: the coordinator stores longer results."""
    read = (one.hash for one in (*job.results, *job.child_results) if one.hash is not None)
    own = (*job.stored, *((job.arguments,) if job.arguments else ()), *read, *saved(job))
    return tuple(dict.fromkeys(own))


def evict(job: Job, op: ops.JobEvict, _: At) -> Job | Verdict:
    """An ended job's content is kept no longer."""
    which = op.body.hash
    if which in job.evicted or (which in job.forgotten and which not in job.stored):
        return Verdict.ALREADY
    if which not in job.stored:
        return Verdict.NO_OUTPUT
    return replace(
        job,
        hlc=op.hlc,
        hlc_author=op.author,
        stored=tuple(one for one in job.stored if one != which),
        evicted=(*job.evicted, which),
    )


def evict_replaced(job: Job, op: ops.JobEvict, _: At) -> Job | Verdict:
    """Before a job ends, only checkpoints that newer ones replaced can be evicted."""
    which = op.body.hash
    if which not in job.replaced:
        return Verdict.ALREADY if which in job.forgotten else Verdict.NOT_ENDED
    # Not a change of the job itself: what its holder is about to write must not become stale.
    return replace(
        job,
        replaced=tuple(one for one in job.replaced if one != which),
        forgotten=(*job.forgotten, which)[-ops.MAX_REPLACED :],
    )
