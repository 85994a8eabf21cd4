"""A question to people on a ledger: asked, taken, answered."""

from dataclasses import dataclass

from msgspec.structs import replace

from antiphon.core.families.jobs.completion_proof import answer_statement_of
from antiphon.core.families.jobs.ops import CompleteBody, JobComplete
from antiphon.core.families.jobs.questions import question_manifest
from antiphon.core.manifest import NonceInput, job_id
from antiphon.core.proof.answer import Answered, Question, answer_output
from antiphon.core.proof.statement import PAYLOAD_TYPE, UNSIGNED
from antiphon.core.record import codec, signing
from antiphon.core.record.verdict import Verdict
from tests.core.authors import ALICE, CAROL, Author
from tests.core.ledger import Ledger, Story

STAMP = "0" * 16
DEPLOY = Question(text="deploy to production?", choices=("yes", "no"))


def answered(by: Author, mesh: str, body: CompleteBody, text: str) -> CompleteBody:
    """The completion with its author's statement that this was asked and so answered."""
    said = Answered(text=text, at=STAMP, sig=UNSIGNED)
    payload = codec.encode(answer_statement_of(mesh, by.did, body, said))
    return replace(body, answered=replace(said, sig=signing.sign(by.secret, PAYLOAD_TYPE, payload)))


@dataclass(frozen=True, slots=True)
class Given:
    """An answer, and what of it is bent."""

    text: str = '"yes"'
    status: str = "succeeded"
    asked: str = ""
    by: Author | None = None
    """Who signs the statement; None: whoever completes it."""


class QuestionStory(Story):
    """One question."""

    def __init__(
        self,
        ledger: Ledger | None = None,
        question: Question = DEPLOY,
        *,
        kind: str = "approve.deploy",
        **rules,
    ) -> None:
        super().__init__(ledger, kind=kind, **rules)
        self.question = question
        self.manifest = question_manifest(question, NonceInput(nonce="0" * 16, origin="child"))
        self.id = job_id(self.manifest)

    def ask(self, by: Author = CAROL, **fields) -> Verdict:
        return self.schedule(by, question=self.question, **fields)

    def take(self, by: Author = ALICE, **how) -> Verdict:
        return self.claim(by, answers=True, begin=True, **how)

    def answer(self, by: Author = ALICE, given: Given = Given(), **how) -> Verdict:  # noqa: B008
        body = CompleteBody(
            kind=self.kind,
            job=self.id,
            fence=self.fence,
            status=given.status,
            outputs=(answer_output(given.text),),
        )
        said = answered(given.by or by, self.ledger.mesh, body, given.asked or self.question.text)
        return self.ledger.put(JobComplete, said, by, **how)
