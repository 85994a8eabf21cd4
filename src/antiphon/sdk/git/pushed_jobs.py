"""Jobs that were pushed as commits: may the signer submit them, and submitting them.

The bridge submits under its own delegation, and only what the signer could submit itself: both are
asked, so a bridge gives nobody more than they have. The signer must also be able to read the jobs
whose results it names: the coordinator asks that of whoever submits, and that is the bridge. The
commit, with its signature, becomes an input of the job, so that the log names it by content.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.grant_reach import State
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import JobSchedule
from antiphon.core.families.jobs.state import job_key
from antiphon.core.family import At
from antiphon.core.manifest import MAX_INPUTS, BlobInput, Manifest, inputs_of, job_id
from antiphon.core.messages.send_right import rights_of
from antiphon.core.record.ids import digest, short_node
from antiphon.core.record.subjects import check_kind
from antiphon.core.reducer import author_fault
from antiphon.core.ucan import covers
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.caller.submission import labelled
from antiphon.runtime.log.acting import Acting
from antiphon.sdk.call_options import Scheduling
from antiphon.sdk.git.job_history import PUSHED
from antiphon.sdk.git.ssh_signature import NAMESPACE, ssh_key_of
from antiphon.sdk.manifests.authored_manifest import read_manifest, require_handler_call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antiphon.core.authority.grant_reach import Grant
    from antiphon.sdk.mesh import Mesh


class PushedJob(Struct, frozen=True, kw_only=True):
    """A job as somebody pushed it."""

    kind: str
    manifest: Manifest
    """With the commit among its inputs."""
    signer: str
    """The did:key that signed the commit."""
    commit_id: str
    commit: bytes

    @property
    def id(self) -> str:
        """The job's id."""
        return job_id(self.manifest)


def pushed_job(
    kind: str, written: bytes, *, signer: str, commit_id: str, commit: bytes
) -> PushedJob:
    """The job in a commit's `job.yaml`; `Malformed` with what is wrong with it."""
    check_kind(kind)
    manifest = read_manifest(written)
    if manifest.handler not in (None, kind):
        raise Malformed(
            f"job.yaml names the handler @{manifest.handler}, but it was pushed as {kind}",
            reason="manifest",
            hint=f"push it to refs/gatos/jobs/new/{manifest.handler}",
        )
    require_handler_call(manifest)
    given = inputs_of(manifest)
    if any(isinstance(one, BlobInput) for one in given):
        raise Malformed(
            "job.yaml names content by its digest, and a digest does not show who may have it",
            reason="manifest",
            hint="give it as an argument, or submit the job with 'antiphon submit'",
        )
    if len(given) >= MAX_INPUTS:
        raise Malformed("job.yaml has as many inputs as a job may have", reason="manifest")
    pushed = BlobInput(
        algo="blake3", hash=digest(commit), size=len(commit), name=PUSHED.format(commit_id)
    )
    whole = replace(manifest, inputs=(*given, pushed))
    return PushedJob(kind=kind, manifest=whole, signer=signer, commit_id=commit_id, commit=commit)


class PushedJobs:
    """Pushed jobs and one mesh."""

    def __init__(self, mesh: Mesh) -> None:
        """The mesh is open."""
        self._mesh = mesh

    @property
    def mesh(self) -> str:
        """The mesh's id."""
        return self._mesh.id

    def signer(self, job: PushedJob) -> Acting:
        """For whom the bridge submits a job: the key that signed its commit."""
        party = rights_of(self._mesh.connection.session.control, job.signer).party
        return Acting(party=party, key=job.signer, words="the key that signed it")

    async def check(self, job: PushedJob) -> None:
        """`Rejected` if the signer could not submit it now, or this bridge may not.

        While the bridge answers a push of this signer.
        """
        session = self._mesh.connection.session
        control, now_ms = await session.sync_control(), session.wall.now_ms()
        body = labelled(session, Scheduling.of({}).body(job.kind, job.manifest, now_ms=now_ms))
        op = session.compose(JobSchedule, body, prev=0)
        session.check_acting(op)
        at = At(session.confirmed + 1, now_ms, control, job_key(job.kind, job.id))
        fault = author_fault(JOBS, None, op, at)
        if fault is not None:
            me = self._mesh.did
            raise Rejected(
                f"this bridge, {short_node(me)}, may not submit {job.kind}: {fault.in_words}",
                reason=fault.value,
                hint=f"antiphon delegate {me} --can schedule --kind {job.kind}",
            )

    async def submit(self, job: PushedJob) -> bool:
        """Submit it, if the signer could; False if it was on the log before."""
        await self.check(job)
        with tempfile.TemporaryDirectory(prefix="antiphon-push-") as folder:
            file = Path(folder) / "commit"
            file.write_bytes(job.commit)
            await self._mesh.artifacts.keep(file, inline_bytes=0)
        handle = await self._mesh.submit_manifest(job.kind, job.manifest)
        return handle.is_new

    async def allowed_signers(self) -> list[str]:
        """Lines of Git's allowed signers file: the keys that may submit some kind now."""
        held = await self._mesh.authority.who()
        signers = dict.fromkeys([held.owner, *_submitters(held.tree.grants())])
        return [f'{one} namespaces="{NAMESPACE}" {ssh_key_of(one)}' for one in signers]


def _submitters(grants: Iterable[Grant]) -> Iterator[str]:
    for one in grants:
        is_wide = one.is_powerline or covers(one.command, JobSchedule.COMMAND)
        if is_wide and one.state is State.LIVE:
            yield one.audience
