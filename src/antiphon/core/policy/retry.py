"""Retry by a person: a new job, linked to the one that ended without a result (spec §7.2).

A finished job is never reopened. The nonce that makes the retry a new job is derived from the first
job's id. So the link can be followed both ways without an index: the retry names the job that it
repeats, and everyone can compute the retry's id from that job. And two people who retry a job at
the same time get one retry, not two.
"""

from __future__ import annotations

from typing import Final

from blake3 import blake3
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from antiphon.core import manifest
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.core.families.jobs.state import State

_CONTEXT: Final = b"antiphon retry\n"
_NONCE_DIGITS: Final = 32
RETRYABLE: Final = frozenset({State.FAILED, State.ABORTED})


def retried(body: ScheduleBody, job_id: str) -> ScheduleBody:
    """The schedule of the retry of a job that was submitted with `body`.

    Everything is the same, except its points in time, which are over.
    """
    return replace(
        body,
        manifest=_anew(body.manifest, job_id),
        start_by=None,
        not_before=None,
        retry_of=job_id,
        replica=None,
        derived=None,
    )


def retry_id(body: ScheduleBody, job_id: str) -> str:
    """The id of a job's retry, whether or not it has been submitted."""
    return manifest.job_id(_anew(body.manifest, job_id))


def _anew(content: manifest.Manifest, job_id: str) -> manifest.Manifest:
    given = () if isinstance(content.inputs, UnsetType) else content.inputs
    kept = tuple(one for one in given if not isinstance(one, manifest.NonceInput))
    nonce = blake3(_CONTEXT + job_id.encode()).hexdigest()[:_NONCE_DIGITS]
    # The alias stays with the job that it names.
    return manifest.with_nonce(replace(content, inputs=kept, ulid=UNSET), nonce, "retry")
