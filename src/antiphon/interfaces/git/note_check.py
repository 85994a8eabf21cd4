"""Checks the notes of a clone: each paragraph has to follow from bundles that were verified.

What the paragraph says about a job is made again from the job's records and from those of the push
that caused it. A job of a commit that has a note has to be in it. With `sources`, the archive that
a push's job stored is made again from the commit in the clone, and its digest compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.errors import AntiphonError
from antiphon.interfaces.git.commit_notes import (
    NOTES,
    paragraph_of,
    paragraphs,
    read_notes,
    texts_of,
)
from antiphon.interfaces.git.job_refs import JOBS
from antiphon.interfaces.git.source_archive import source_digest
from antiphon.sdk.git.pushes import is_push_kind, push_of, source_hash

if TYPE_CHECKING:
    from antiphon.interfaces.git.commit_notes import Key
    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.job_history import JobHistory
    from antiphon.sdk.git.pushes import Push


Wrong = tuple[str, str]
"""A ref, and what is wrong with it."""


class NoteCheck:
    """What verified jobs have to do with commits."""

    def __init__(self) -> None:
        """Nothing is verified yet."""
        self._pushes: dict[Key, tuple[Push, str]] = {}
        self._caused: dict[Key, JobHistory] = {}

    def add(self, history: JobHistory) -> None:
        """A job whose bundle was verified."""
        push = push_of(history)
        if push is not None:
            self._pushes[history.kind, history.id] = (push, source_hash(history))
        if history.cause is not None and is_push_kind(history.cause[0]):
            self._caused[history.kind, history.id] = history

    async def check(self, repository: Repository, unsealed: set[str]) -> tuple[int, list[Wrong]]:
        """How many notes are verified, and what is wrong with others.

        `unsealed` are jobs without a bundle: notes about them are neither.
        """
        tree = await read_notes(repository)
        right, wrong = 0, list[Wrong]()
        texts = await texts_of(repository, tree.blobs.values())
        named: dict[str, set[Key]] = {}
        for commit, blob in tree.blobs.items():
            said = paragraphs(texts.get(blob, ""))
            named[commit] = {key for key, _ in said if key is not None}
            problems = [
                self._problem(commit, key, text)
                for key, text in said
                if key is None or key[1] not in unsealed
            ]
            problem = next((one for one in problems if one), "") if said else "it says nothing"
            if problem:
                wrong.append((f"{NOTES}:{commit}", problem))
            elif len(problems) == len(said):
                right += 1
        for key, history in self._caused.items():
            push = self._cause_of(history)
            jobs = named.get(push.commit_id) if push is not None else None
            if push is not None and jobs is not None and key not in jobs:
                wrong.append((f"{NOTES}:{push.commit_id}", f"it leaves out the job {key[1]}"))
        return right, wrong

    def _cause_of(self, history: JobHistory) -> Push | None:
        known = self._pushes.get(history.cause) if history.cause is not None else None
        return known[0] if known is not None else None

    def _problem(self, commit: str, key: Key | None, text: str) -> str:
        """Why a paragraph is wrong; empty if it is right."""
        if key is None:
            return "it has a paragraph that names no job"
        history = self._caused.get(key)
        if history is None:
            return f"no verified job here is {key[0]} {key[1]}"
        push = self._cause_of(history)
        if push is None:
            return f"the push that caused the job {key[1]} is not verified here"
        if push.commit_id != commit:
            return f"the job {key[1]} is about the commit {push.commit_id}"
        if text != paragraph_of(history, push):
            return f"it does not say what follows from the records of the job {key[1]}"
        return ""

    async def check_sources(self, repository: Repository) -> tuple[int, list[Wrong]]:
        """The same for the archives of pushed commits, where the clone has the commit."""
        right, wrong = 0, list[Wrong]()
        commits = {push.commit_id for push, _ in self._pushes.values()}
        there = await repository.targets(f"{one}^{{commit}}" for one in commits)
        for push, stored in self._pushes.values():
            if f"{push.commit_id}^{{commit}}" not in there:
                continue
            try:
                made = await source_digest(repository, push.commit_id)
            except AntiphonError as error:
                made = error.message
            if made == stored:
                right += 1
            else:
                problem = "the files that its job stored are not those of the commit"
                wrong.append((f"{JOBS}{push.job}/result", problem))
        return right, wrong
