"""The story of a question for the golden log (`golden_log.py`): Carol coordinates an open mesh."""

from msgspec.structs import replace

from tests.core.authors import ALICE, BOB
from tests.core.ledger import Ledger
from tests.core.question_story import DEPLOY, Given, QuestionStory

AT = 59_000


def story(ledger: Ledger) -> None:
    """Bob asks, Alice answers; of each rule one that breaks it."""
    question = QuestionStory(ledger)
    other = QuestionStory(ledger, replace(DEPLOY, needs="perhaps"))
    other.ask(BOB, how={"at": AT})  # question
    question.ask(BOB, how={"at": AT + 1})
    question.offer(BOB, at=AT + 2)  # question
    question.claim(ALICE, at=AT + 3)  # question
    question.take(BOB, at=AT + 4)  # self
    question.take(ALICE, at=AT + 5)
    question.complete(ALICE, at=AT + 6)  # answer
    question.answer(ALICE, Given('"perhaps"'), at=AT + 7)  # answer
    question.answer(ALICE, Given(by=BOB), at=AT + 8)  # proof
    question.answer(ALICE, at=AT + 9)
