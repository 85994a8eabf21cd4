"""A bundle checked step by step, for pages that show how far it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from msgspec import Struct, structs

from antiphon.core import bundle as core_bundle
from antiphon.core.history.story import Line
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record.ids import short_node
from antiphon.errors import AntiphonError, Rejected
from antiphon.guard import TOO_MUCH
from antiphon.sdk.proofs import sentences
from antiphon.sdk.proofs.bundles import Report, names_in

STEPS: Final = {
    "bytes": "Bytes",
    "mesh": "Mesh and owner",
    "seal": "Seal",
    "verdicts": "Signatures and rules",
    "coordinator": "Coordinator",
    "end": "Proof of execution",
}
"""The steps and their titles, in the order in which they are checked."""
State = Literal["done", "broke", "never"]


class Step(Struct, frozen=True):
    """One step of the check."""

    title: str
    words: str
    state: State


class Verification(Struct, frozen=True, kw_only=True):
    """How far a bundle holds."""

    steps: list[Step]
    sentence: str
    """The result in one sentence."""
    report: Report | None = None
    """None: it is not valid."""
    shown: list[str] = []
    not_shown: list[str] = []

    def story(self) -> list[Line]:
        """Its records, a sentence each, with nodes by the names that grants gave them."""
        if self.report is None:
            return []
        names = {short_node(did): name for did, name in names_in(self.report).items()}

        def named(words: str) -> str:
            return " ".join(names.get(word, word) for word in words.split(" "))

        return [
            structs.replace(line, author=named(short_node(line.author)), words=named(line.words))
            for line in self.report.story()
        ]


def verify_in_steps(
    data: bytes, *, owner: str | None = None, turn: Callable[[], None] = lambda: None
) -> Verification:
    """Check a bundle offline; never raises for what is in the file.

    `turn` is called after each record: what it raises ends the check.
    """
    told: dict[str, str] = {}
    try:
        bundle = core_bundle.read(data)
        told["bytes"] = (
            f"{len(data):,} bytes, format {bundle.format},"
            f" {len(bundle.records):,} records in canonical form."
        )
        report = core_bundle.check(
            PROTOCOL, bundle, owner=owner, passed=told.__setitem__, turn=turn
        )
        told["end"] = _end(report)
    except AntiphonError as problem:
        if isinstance(problem, Rejected) and problem.reason == TOO_MUCH:
            raise
        return _broken(told, problem.message)
    return Verification(
        steps=[Step(title, told[name], "done") for name, title in STEPS.items()],
        sentence=f"This bundle is valid: {sentences.outcome(report)}.",
        report=report,
        shown=sentences.proved(report, is_owner_given=owner is not None),
        not_shown=sentences.not_proved(report),
    )


def _broken(told: dict[str, str], why: str) -> Verification:
    why = why.removeprefix("the bundle is not valid: ")
    steps = [Step(title, told[name], "done") for name, title in STEPS.items() if name in told]
    rest = [title for name, title in STEPS.items() if name not in told]
    steps.append(Step(rest[0], f"{why[:1].upper()}{why[1:]}.", "broke"))
    steps += [Step(title, "Not reached.", "never") for title in rest[1:]]
    return Verification(steps=steps, sentence=f"This bundle is not valid: {why}.")


def _end(report: Report) -> str:
    if not report.is_job:
        return "It is not about a job, so there is none."
    if report.quorum:
        return f"{len(report.quorum)} replicas agree, each with a proof of its worker."
    done = report.completion
    if done is None:
        return "No run of the job was completed, so there is none."
    if done.body.answered is not None:
        return "It is a question: question and answer are signed by whoever answered."
    if done.body.proof is None:
        return "The completion has none."
    return "Signed by the same worker. Job, fence, output and times agree with the completion."
