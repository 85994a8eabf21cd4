"""Notes on commits: how the jobs ended that plans submitted when a commit was pushed.

A note is in `refs/notes/antiphon`, as `git notes` and `git log --notes=antiphon` read it. It has a
paragraph for each job, and every line of it follows from accepted records. A note that is written
anew keeps of the old one only what the log says as well.

    Outcome: succeeded
    Kind: ci.app
    Job-Id: blake3:…            and the other trailers of the job's result
    Branch: refs/heads/main
    Push: blake3:…              the job that says that the commit came to that branch
    Bundle: refs/gatos/jobs/…   what 'antiphon verify' checks, once a seal covers the job
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from antiphon.errors import Unreadable
from antiphon.interfaces.git.job_refs import BUNDLE, by_line, folder_of, job_line
from antiphon.read_back import read_back
from antiphon.sdk.git.pushes import push_of
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antiphon.interfaces.git.objects import Objects, Signature
    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.job_feed import JobReader
    from antiphon.sdk.git.job_history import JobHistory
    from antiphon.sdk.git.pushes import Push

NOTES: Final = "refs/notes/antiphon"
MOST_JOBS: Final = 100
"""Jobs in one note; more of the same commit are only below their own refs."""
MAX_NOTE_BYTES: Final = 256 * 1024
"""A longer note is not one of ours."""
_ID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)
_FOLDER: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)
_KIND: Final = re.compile(r"^Kind: ([a-z0-9._-]+)$", re.MULTILINE | re.ASCII)
_JOB: Final = re.compile(r"^Job-Id: blake3:([0-9a-f]{64})$", re.MULTILINE | re.ASCII)

Key = tuple[str, str]
"""The kind and the id of a job."""

_log = LazyLogger(__name__)


def paragraph_of(history: JobHistory, push: Push) -> str:
    """What a note says about a job that ended; the push is what caused it."""
    ending = history.ending
    if ending is None:
        raise ValueError(f"the job {history.id} has not ended")
    lines = [
        ("Outcome", ending.outcome),
        ("Kind", history.kind),
        *(ending.trailers or [job_line(history)]),
        ("Branch", push.ref),
        ("Push", f"blake3:{push.job}"),
        ("Bundle", f"{folder_of(history)}bundle:{BUNDLE}"),
    ]
    return "\n".join(f"{name}: {value}" for name, value in lines)


def paragraphs(text: str) -> list[tuple[Key | None, str]]:
    """The paragraphs of a note, and the job that each is about; None: it does not say."""
    found: list[tuple[Key | None, str]] = []
    for one in text.strip("\n").split("\n\n") if text.strip() else ():
        kinds, jobs = _KIND.findall(one), _JOB.findall(one)
        is_named = len(kinds) == len(jobs) == 1
        found.append(((kinds[0], jobs[0]) if is_named else None, one))
    return found


class NotesTree:
    """The notes as they are in a repository, and as they are to be."""

    def __init__(self, parent: str, blobs: dict[str, str], folders: dict[str, str]) -> None:
        """Use `read_notes`."""
        self._parent = parent
        self._blobs = blobs
        self._folders = folders
        self._changed: dict[str, str] = {}

    @property
    def blobs(self) -> Mapping[str, str]:
        """The ids of the notes' texts, by commit."""
        return self._blobs

    def say(self, commit: str, said: Mapping[Key, str]) -> bool:
        """Let a commit have another note, or none; if readers would pass over it, it stays."""
        chosen, text = _chosen(said), _joined(said)
        try:
            if text:
                read_back(f"the note on {commit}", chosen, said_in, text.encode())
        except Unreadable as problem:
            _log.warning("git mirror: a note is not written", commit=commit, reason=problem.message)
            return False
        self._changed[commit] = text
        return True

    def write(self, by: Signature, made: Objects) -> str:
        """Add what is to be stored; the id of the new commit, empty if nothing changed."""
        blobs = dict(self._blobs)
        for commit, text in self._changed.items():
            if text:
                blobs[commit] = made.add_blob(text.encode())
            else:
                blobs.pop(commit, None)
        if blobs == self._blobs:
            return ""
        inside: dict[str, dict[str, str]] = {}
        for commit, blob in blobs.items():
            inside.setdefault(commit[:2], {})[commit[2:]] = blob
        changed = {commit[:2] for commit in self._changed}
        folders = {
            name: made.add_tree(files)
            if name in changed or name not in self._folders
            else self._folders[name]
            for name, files in inside.items()
        }
        tree = made.add_tree({}, folders)
        parents = [self._parent] if self._parent else []
        return made.add_commit(tree, parents, by, "How jobs ended", ())


async def read_notes(repository: Repository) -> NotesTree:
    """The notes of a repository; none, if it has no such ref."""
    at = (await repository.targets([NOTES])).get(NOTES, "")
    if not at:
        return NotesTree("", {}, {})
    listed = await repository.git("ls-tree", "-r", "-t", "-z", "--full-tree", at)
    blobs: dict[str, str] = {}
    folders: dict[str, str] = {}
    for line in listed.decode(errors="replace").split("\0"):
        head, _, path = line.partition("\t")
        words, name = head.split(), path.replace("/", "")
        if words[1:2] == ["blob"] and _ID.fullmatch(name):
            blobs[name] = words[2]
            if path != f"{name[:2]}/{name[2:]}":
                folders.pop(name[:2], None)  # in another layout: written anew
        elif words[1:2] == ["tree"] and _FOLDER.fullmatch(path):
            folders[path] = words[2]
    return NotesTree(at, blobs, folders)


async def texts_of(repository: Repository, blobs: Iterable[str]) -> dict[str, str]:
    """The texts of notes, by id; a text that cannot be one of ours is empty."""
    found = await repository.objects_named(blobs)
    return {name: _text(data) for name, data in found.items()}


def _text(data: bytes) -> str:
    return data.decode(errors="replace") if len(data) <= MAX_NOTE_BYTES else ""


def said_in(data: bytes) -> list[tuple[Key | None, str]]:
    """What a reader finds in the bytes of a note."""
    return paragraphs(_text(data))


class CommitNotes:
    """Keeps the notes of one repository equal to what the log accepted."""

    def __init__(self, repository: Repository, kind: str) -> None:
        """`kind` is that of the pushes to this repository."""
        self._repository = repository
        self._kind = kind

    async def after(
        self, reader: JobReader, histories: Iterable[JobHistory], made: Objects
    ) -> dict[str, str]:
        """The ref of the notes after these jobs changed; empty if no note did."""
        fresh: dict[str, dict[Key, str]] = {}
        newest: JobHistory | None = None
        for history in histories:
            said = self._said(reader, history)
            if said is not None:
                fresh.setdefault(said[0], {})[history.kind, history.id] = said[1]
                newest = history
        if newest is None:
            return {}
        return await self._written(reader, fresh, newest, made)

    async def again(self, reader: JobReader, made: Objects) -> tuple[int, dict[str, str]]:
        """How many notes there are that do not follow from the log; the ref without them."""
        tree = await read_notes(self._repository)
        texts = await texts_of(self._repository, tree.blobs.values())
        wrong, newest = 0, None
        for commit, blob in tree.blobs.items():
            kept, some = await self._kept(reader, commit, texts.get(blob, ""), {})
            newest = some or newest
            if _joined(kept) != texts.get(blob, ""):
                wrong += tree.say(commit, kept)
        at = tree.write(by_line(reader.mesh, newest), made) if wrong else ""
        return wrong, {NOTES: at} if at else {}

    async def _written(
        self,
        reader: JobReader,
        fresh: Mapping[str, Mapping[Key, str]],
        newest: JobHistory,
        made: Objects,
    ) -> dict[str, str]:
        tree = await read_notes(self._repository)
        before = {commit: tree.blobs[commit] for commit in fresh if commit in tree.blobs}
        texts = await texts_of(self._repository, before.values())
        for commit, said in fresh.items():
            old = texts.get(before.get(commit, ""), "")
            kept, _ = await self._kept(reader, commit, old, said)
            tree.say(commit, {**kept, **said})
        at = tree.write(by_line(reader.mesh, newest), made)
        return {NOTES: at} if at else {}

    async def _kept(
        self, reader: JobReader, commit: str, text: str, said: Mapping[Key, str]
    ) -> tuple[dict[Key, str], JobHistory | None]:
        """What of an old note follows from the log, without the jobs that are said anyway."""
        kept: dict[Key, str] = {}
        newest = None
        for key, paragraph in paragraphs(text)[:MOST_JOBS]:
            if key is None or key in said:
                continue
            history = reader.history(*key)
            if history is None:
                if await reader.has_left(key[1]):
                    kept[key] = paragraph
                continue
            now = self._said(reader, history)
            if now is not None and now[0] == commit:
                kept[key], newest = now[1], history
        return kept, newest

    def _said(self, reader: JobReader, history: JobHistory) -> tuple[str, str] | None:
        """The commit that a job is about, and what its note says; None if it is about none."""
        cause = history.cause
        if history.ending is None or cause is None or cause[0] != self._kind:
            return None
        before = reader.history(*cause)
        push = push_of(before) if before is not None else None
        return None if push is None else (push.commit_id, paragraph_of(history, push))


def _joined(said: Mapping[Key, str]) -> str:
    if len(said) > MOST_JOBS:
        _log.warning("git mirror: a note has no room for more jobs", jobs=len(said))
    chosen = _chosen(said)
    return "\n\n".join(text for _, text in chosen) + "\n" if chosen else ""


def _chosen(said: Mapping[Key, str]) -> list[tuple[Key, str]]:
    return [(key, said[key]) for key in sorted(said)[:MOST_JOBS]]


__all__ = ["NOTES", "CommitNotes", "NotesTree", "paragraph_of", "paragraphs", "read_notes"]
