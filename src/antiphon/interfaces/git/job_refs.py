"""A job's life as commits and refs. The same history gives the same ids on every machine.

    refs/gatos/jobs/<job-id>/job                  job.yaml
                             claims/<worker-id>   a commit for each claim, and for its end
                             result               job.yaml, proof.json, outputs.json
                             bundle               the same, and bundle.json

All of them but the first come after it: the parent of the result is the job's commit. Every line of
a message is made of words that the log checked, such as kinds, digests and keys: nobody can write
a trailer into a command or an error text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from antiphon.interfaces.git.objects import Objects, Signature
from antiphon.sdk.git.job_history import key_id

if TYPE_CHECKING:
    from antiphon.sdk.git.job_feed import SealedBundle
    from antiphon.sdk.git.job_history import Claim, Ending, JobHistory

JOBS: Final = "refs/gatos/jobs/"
MANIFEST: Final = "job.yaml"
PROOF: Final = "proof.json"
OUTPUTS: Final = "outputs.json"
BUNDLE: Final = "bundle.json"
SHORT: Final = 8


def folder_of(history: JobHistory) -> str:
    """Where a job's refs are.

    An id is the digest of what is run; the same under a second kind is another job.
    """
    below = "" if history.is_first else f"kinds/{history.kind}/"
    return f"{JOBS}{history.id}/{below}"


def refs_of(history: JobHistory, made: Objects) -> dict[str, str]:
    """The refs of a job and what each points to; the objects are added to `made`."""
    folder = folder_of(history)
    manifest = made.add_blob(history.manifest)
    tree = made.add_tree({MANIFEST: manifest})
    job = made.add_commit(
        tree, [], _by(history.mesh, history.submitter, history.at_ms), *_submitted(history)
    )
    refs = {f"{folder}job": job}
    for claim in history.claims:
        name = f"{folder}claims/{key_id(claim.worker).partition(':')[2]}"
        refs[name] = _claimed(history, claim, tree, refs.get(name, job), made)
    if history.ending is not None:
        refs[f"{folder}result"] = _result(history, history.ending, manifest, job, made)
    return refs


def bundle_refs(bundle: SealedBundle, made: Objects) -> dict[str, str]:
    """The ref of a job's bundle, whose parent is the job's result."""
    history, folder = bundle.history, folder_of(bundle.history)
    if history.ending is None:
        return {}
    result = refs_of(history, made)[f"{folder}result"]
    files = _files(history.ending, made.add_blob(history.manifest), made)
    tree = made.add_tree({**files, BUNDLE: made.add_blob(bundle.data)})
    by = _by(history.mesh, history.ending.by, history.ending.at_ms)
    trailers = [job_line(history), ("Sealed-Upto", str(bundle.upto))]
    commit = made.add_commit(tree, [result], by, _subject(history, "bundle"), trailers)
    return {f"{folder}bundle": commit}


def by_line(mesh: str, history: JobHistory | None) -> Signature:
    """Who ended a job, and when, as the author of a commit; without a job, the mesh."""
    if history is None or history.ending is None:
        return Signature(mesh, mesh, 0)
    return _by(mesh, history.ending.by, history.ending.at_ms)


def _by(mesh: str, did: str, at_ms: int) -> Signature:
    key = did.removeprefix("did:key:")
    return Signature(did, f"{key}@{mesh}", at_ms // 1000)


def _subject(history: JobHistory, what: str) -> str:
    return f"{history.kind} {history.id[:SHORT]}: {what}"


def job_line(history: JobHistory) -> tuple[str, str]:
    """The trailer that names a job."""
    return "Job-Id", f"blake3:{history.id}"


def _submitted(history: JobHistory) -> tuple[str, list[tuple[str, str]]]:
    lines = [
        job_line(history),
        ("Kind", history.kind),
        ("Priority", history.priority),
        ("Submitter-Id", key_id(history.submitter)),
    ]
    if history.commit:
        lines.append(("Pushed-Commit", history.commit))
    return _subject(history, "submitted"), lines


def _claimed(history: JobHistory, claim: Claim, tree: str, parent: str, made: Objects) -> str:
    """The commit of a claim, or of its end, which comes after it."""
    lines = [job_line(history), ("Worker-Id", key_id(claim.worker)), ("Fence", claim.fence)]
    by = _by(history.mesh, claim.worker, claim.at_ms)
    commit = made.add_commit(tree, [parent], by, _subject(history, "claimed"), lines)
    if not claim.ended:
        return commit
    by = _by(history.mesh, claim.ended_by, claim.ended_ms)
    lines.append(("Ended", claim.ended))
    return made.add_commit(tree, [commit], by, _subject(history, "claim ended"), lines)


def _result(history: JobHistory, ending: Ending, manifest: str, job: str, made: Objects) -> str:
    tree = made.add_tree(_files(ending, manifest, made))
    by = _by(history.mesh, ending.by, ending.at_ms)
    lines = [*(ending.trailers or [job_line(history)]), ("Outcome", ending.outcome)]
    lines += [("Agreed", f"blake3:{one}") for one in ending.agreed]
    return made.add_commit(tree, [job], by, _subject(history, ending.outcome), lines)


def _files(ending: Ending, manifest: str, made: Objects) -> dict[str, str]:
    files = {MANIFEST: manifest, OUTPUTS: made.add_blob(ending.outputs)}
    if ending.proof is not None:
        files[PROOF] = made.add_blob(ending.proof)
    return files
