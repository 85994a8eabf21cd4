"""Checks a clone offline: its refs have to show exactly what the sealed bundles in it prove.

A bundle has every record of its job, and the commits follow from the records. So they are made
again here, and their ids compared: a changed proof, trailer, parent, date or file is another id.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.interfaces.git.job_refs import BUNDLE, JOBS, bundle_refs, refs_of
from antiphon.interfaces.git.note_check import NoteCheck
from antiphon.interfaces.git.objects import Objects
from antiphon.sdk.git.job_feed import SealedBundle
from antiphon.sdk.git.job_history import history_in, is_pushed_input
from antiphon.sdk.proofs.bundles import open_bundle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.job_history import JobHistory

AT_ONCE: Final = 200
MOST_NAMED: Final = 100
"""How many findings are kept; the others are counted."""
_REF: Final = re.compile(
    JOBS + r"([0-9a-f]{64})/(kinds/[a-z0-9._-]+/)?"
    r"(job|result|bundle|pushed|claims/[0-9a-f]{64})",
    re.ASCII,
)


class Finding(Struct, frozen=True, kw_only=True):
    """A ref that does not show what the log accepted, or cannot be checked."""

    ref: str
    problem: str


class Checked(Struct, kw_only=True):
    """What was found in a clone."""

    jobs: int = 0
    verified: int = 0
    unsealed: int = 0
    """Jobs without a bundle yet: they have not ended, or no seal covers them."""
    notes: int = 0
    """Commits whose note says what verified jobs show; jobs without a bundle yet do not count."""
    sources: int = 0
    """Pushes whose stored files are those of the commit, if that was asked for."""
    wrong: int = 0
    findings: list[Finding] = []
    mesh: str = ""
    owner: str = ""

    def add(self, ref: str, problem: str) -> None:
        """Count something that is wrong."""
        self.wrong += 1
        if len(self.findings) < MOST_NAMED:
            self.findings.append(Finding(ref=ref, problem=problem))

    def add_all(self, wrong: Iterable[tuple[str, str]]) -> None:
        """Count several."""
        for ref, problem in wrong:
            self.add(ref, problem)


async def check_clone(
    repository: Repository, *, owner: str | None = None, job: str = "", with_sources: bool = False
) -> Checked:
    """Check every job and every note in a repository; or only jobs whose id begins so.

    `with_sources` also makes the files that pushes have stored again from their commits.
    """
    found = Checked(owner=owner or "")
    folders: dict[str, dict[str, str]] = {}
    for name, target in (await repository.refs(JOBS.removesuffix("/"))).items():
        shape = _REF.fullmatch(name)
        if shape is None:
            found.add(name, "no such ref belongs to a job")
        elif shape[1].startswith(job):
            folder = name[: -len(shape[3])]
            folders.setdefault(folder, {})[shape[3]] = target
    found.jobs = len(folders)
    noted = NoteCheck()
    for some in _slices(folders):
        await _check_some(repository, some, found, noted)
    if not job:
        unsealed = {_job_in(name) for name, refs in folders.items() if "bundle" not in refs}
        found.notes, wrong = await noted.check(repository, unsealed)
        found.add_all(wrong)
    if with_sources:
        found.sources, wrong = await noted.check_sources(repository)
        found.add_all(wrong)
    return found


def _job_in(folder: str) -> str:
    return folder.removeprefix(JOBS).partition("/")[0]


def _slices(
    folders: Mapping[str, dict[str, str]],
) -> Iterator[dict[str, dict[str, str]]]:
    names = sorted(folders)
    for at in range(0, len(names), AT_ONCE):
        yield {name: folders[name] for name in names[at : at + AT_ONCE]}


async def _check_some(
    repository: Repository,
    folders: Mapping[str, dict[str, str]],
    found: Checked,
    noted: NoteCheck,
) -> None:
    sealed = {folder: refs for folder, refs in folders.items() if "bundle" in refs}
    found.unsealed += len(folders) - len(sealed)
    bundles = await repository.objects_named(f"{folder}bundle:{BUNDLE}" for folder in sealed)
    pushed = [refs["pushed"] for refs in sealed.values() if "pushed" in refs]
    commits = await repository.objects_named(pushed)
    for folder, refs in sealed.items():
        data = bundles.get(f"{folder}bundle:{BUNDLE}")
        if data is None:
            found.add(f"{folder}bundle", f"it has no {BUNDLE}")
            continue
        try:
            history, problem = _look(repository.algorithm, folder, refs, data, commits, found)
        except AntiphonError as error:
            history, problem = None, ("bundle", error.message)
        if problem is None and history is not None:
            found.verified += 1
            noted.add(history)
        elif problem is not None:
            found.add(folder + problem[0], problem[1])


def _look(
    algorithm: str,
    folder: str,
    refs: Mapping[str, str],
    data: bytes,
    commits: Mapping[str, bytes],
    found: Checked,
) -> tuple[JobHistory | None, tuple[str, str] | None]:
    """A job, the ref of it that is wrong, and why; None if all of them follow from its bundle."""
    report = open_bundle(data, owner=found.owner or None)
    if (found.mesh or report.mesh) != report.mesh:
        return None, ("bundle", f"it is of another mesh: {report.mesh}")
    is_first = "/kinds/" not in folder
    history = history_in(report, is_first=is_first)
    if history is None:
        return None, ("bundle", "it is about something else than a job")
    found.mesh, found.owner = report.mesh, report.owner
    sealed = SealedBundle(history=history, data=data, upto=report.seal.upto)
    made = Objects(algorithm)
    wanted = refs_of(history, made) | bundle_refs(sealed, made)
    for name, target in refs.items():
        if name == "pushed":
            if not is_pushed_input(history, target, commits.get(target, b"")):
                return history, (name, "it is not the commit that the job names as its input")
        elif wanted.get(folder + name) != target:
            return history, (name, "it is not what follows from the records in its bundle")
    return history, None


__all__ = ["Checked", "Finding", "check_clone"]
