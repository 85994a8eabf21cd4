"""How the features of rows P1 to P13 are taken out: the job plane."""

from typing import Any

from tests.breaks.replacement import Break, around, calls, cells_like, gives

MANIFEST = "antiphon.core.manifest"


def lax(old: Any, fields: Any) -> Any:
    """Unknown fields are left out."""
    from antiphon.core.manifest import Manifest

    return old({name: fields[name] for name in fields if name in Manifest.__struct_fields__})


def as_it_comes(manifest: Any) -> bytes:
    """JSON that is not canonical."""
    import msgspec

    return msgspec.json.encode(manifest)


def with_its_alias(manifest: Any) -> bytes:
    """Canonical JSON of everything, alias included."""
    from antiphon.core.record import codec

    return codec.encode(manifest)


def of_another_job(old: Any, mesh: str, by: str, body: Any, proof: Any) -> Any:
    """A statement that is not about the job in the completion."""
    from msgspec.structs import replace

    return old(mesh, by, replace(body, job="0" * 64), proof)


def given_up(_sender: Any, item: Any) -> Any:
    """An item of the outbox that is never sent."""
    from msgspec.structs import replace

    return replace(item, state="dropped")


BREAKS = {
    "P1": (
        Break(
            "antiphon.core.families.jobs.ops:ScheduleBody.waits",
            gives(True),
            "an accepted job is announced to nobody",
        ),
    ),
    "P2": (
        Break(f"{MANIFEST}:author", around(lax), "unknown fields are left out without a word"),
        Break(f"{MANIFEST}:seconds", gives(30), "ISO durations are not read"),
    ),
    "P3": (Break(f"{MANIFEST}:core_bytes", calls(as_it_comes), "other bytes are hashed"),),
    "P4": (
        Break(f"{MANIFEST}:core_bytes", calls(with_its_alias), "an alias makes another job"),
        Break(
            "antiphon.runtime.replica.replica_jobs:ReplicaJobs.find",
            gives([]),
            "an alias names nothing",
        ),
    ),
    "P5": (
        Break(
            "antiphon.engines.memory.log:LogStore.append",
            around(
                lambda old, self, subject, payload, message_id, _: old(
                    self, subject, payload, message_id, self.last_on(subject)
                )
            ),
            "nothing is compared before a write",
        ),
    ),
    "P6": (
        Break("antiphon.runtime.log.session:backoff_ms", gives(0), "a lost race is run at once"),
        Break(
            "antiphon.runtime.worker.job_claims:claim_delay_s",
            gives(0.0),
            "a lost claim is tried again at once",
        ),
    ),
    "P7": (
        Break(
            "antiphon.core.families.jobs.completion_proof:is_proved",
            gives(True),
            "a result without a proof is accepted",
        ),
        Break(
            "antiphon.runtime.executors.proof_writer:prove",
            calls(lambda _session, body, _run: body),
            "a worker proves nothing",
        ),
    ),
    "P8": (
        Break(
            "antiphon.core.families.jobs.completion_proof:statement_of",
            around(of_another_job),
            "a proof is about another job",
        ),
        Break("antiphon.core.proof.statement:is_signed_by", gives(True), "anyone signs a proof"),
    ),
    "P9": (
        Break(
            "antiphon.core.proof.statement:trailers",
            around(lambda old, envelope: old(envelope)[:-1]),
            "a trailer is missing",
        ),
    ),
    "P10": (
        Break(
            "antiphon.core.families.jobs.table:TRANSITIONS",
            cells_like("JobStart", "claimed", like="pending"),
            "a claimed job does not start",
        ),
        Break(
            "antiphon.core.families.jobs.table:TRANSITIONS",
            cells_like("JobCancel", "waiting", "pending", "claimed", "running", like="failed"),
            "nothing can be cancelled",
        ),
    ),
    "P12": (
        Break(
            "antiphon.runtime.outbox.outbox_sender:OutboxSender._settle",
            calls(given_up),
            "what waits is dropped instead of sent",
        ),
        Break(
            "antiphon.runtime.outbox.outbox_store:OutboxStore.put",
            gives(None),
            "what should wait is not stored",
        ),
        Break(
            "antiphon.runtime.artifacts.waiting_blobs:WaitingBlobs.send",
            gives(None),
            "large values are named, and never stored",
        ),
        Break(
            "antiphon.runtime.worker.tenure:Tenure.keep_in",
            gives(None),
            "what a run makes is not kept",
        ),
    ),
    "P11": (
        Break(
            "antiphon.interfaces.git.job_refs:job_line",
            gives(("Job-Id", "blake3:" + "0" * 64)),
            "commits name another job",
        ),
        Break(
            "antiphon.interfaces.git.clone_check:history_in",
            gives(None),
            "nothing in a clone can be verified",
        ),
    ),
    "P13": (
        Break(
            "antiphon.runtime.plans.plan_runner:PlanRunner._reaction",
            gives(None),
            "a change of state starts nothing",
        ),
        Break(
            "antiphon.core.families.jobs.planned:_is_said",
            gives(True),
            "what a plan starts need not be what it says",
        ),
    ),
}
