"""Questions to people: what is asked, what an answer may be, and the signed statement of an answer.

A question is a job that no worker runs (spec §7.3). Whoever answers it signs what was asked, what
they answer, and by which key: an in-toto Statement of a type of its own, in a DSSE envelope, as a
proof of execution is. On the log it is short, and put together from the completion that has it.
"""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core.proof.answer_schema import schema_problem, value_problem
from antiphon.core.proof.output import Output
from antiphon.core.proof.statement import (
    PAYLOAD_TYPE,
    STATEMENT_TYPE,
    DsseEnvelope,
    DsseSignature,
    Stamp,
    Subject,
    subjects_of,
)
from antiphon.core.record import codec, signing
from antiphon.core.record.ids import digest
from antiphon.core.record.op import Body, Did
from antiphon.decoding import UNREADABLE

PREDICATE_TYPE: Final = "urn:antiphon:answer:v1"
MAX_QUESTION: Final = 2_000
MAX_CHOICES: Final = 32
MAX_SCHEMA: Final = 8 * 1024
MAX_ANSWER: Final = 16 * 1024
MAX_NOT_BY: Final = 32
MAX_NESTING: Final = 32
ANSWER: Final = "result"
"""The name of the output that is the answer, as that of a handler's result."""
JSON: Final = "application/json"

_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"')
_BRACKETS: Final = re.compile(r"[\[\]{}]")

QuestionText = Annotated[str, Meta(min_length=1, max_length=MAX_QUESTION)]
Choice = Annotated[str, Meta(min_length=1, max_length=200)]


class Question(Body, frozen=True):
    """What people are asked, and which answers there are."""

    text: QuestionText
    choices: Annotated[tuple[Choice, ...], Meta(max_length=MAX_CHOICES)] = ()
    schema: Annotated[str, Meta(max_length=MAX_SCHEMA)] | None = None
    """The JSON Schema of the answer, as JSON; without it and without choices any text is one."""
    needs: Choice | None = None
    """The only choice with which the job succeeds; with any other it fails."""
    not_by: Annotated[tuple[Did, ...], Meta(max_length=MAX_NOT_BY)] = ()
    """Parties that may not answer, besides the one that asks."""


class Answered(Body, frozen=True):
    """An answer's signed statement as a completion carries it."""

    text: QuestionText
    """What was asked, as whoever answered was shown it."""
    at: Stamp
    sig: Annotated[bytes, Meta(min_length=64, max_length=64)]


class AnswerPredicate(Body, frozen=True):
    """The statement of whoever answered."""

    mesh: str
    kind: str
    job: str
    text: str
    """What was asked."""
    answer: str
    """What was answered, as JSON."""
    key: str
    """Whose key signed it."""
    fence: str
    answered: str
    """HLC, as 16 hexadecimal digits."""


class AnswerStatement(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An in-toto Statement, version 1, about an answer."""

    type: Literal["https://in-toto.io/Statement/v1"] = msgspec.field(name="_type")
    subject: tuple[Subject, ...]
    predicate_type: Literal["urn:antiphon:answer:v1"] = msgspec.field(name="predicateType")
    predicate: AnswerPredicate


def question_problem(question: Question) -> str:
    """Why nobody could answer a question, or why it contradicts itself; empty if it is usable."""
    choices = question.choices
    if choices and question.schema is not None:
        return "a question has choices or a schema, not both"
    if len(set(choices)) < len(choices):
        return "a question has each choice once"
    if question.needs is not None and question.needs not in choices:
        return "the answer that a question needs is not one of its choices"
    if question.schema is None:
        return ""
    found = _parsed(question.schema)
    return "its schema is not JSON" if found is None else schema_problem(found[0])


def answer_problem(question: Question, text: str) -> str:
    """Why this JSON text is no answer to a usable question; empty if it is one."""
    if len(text) > MAX_ANSWER:
        return f"the answer has more than {MAX_ANSWER:,} characters"
    found = _parsed(text)
    if found is None:
        return "the answer is not JSON"
    value = found[0]
    if question.schema is not None:
        schema = _parsed(question.schema)
        return value_problem(schema[0] if schema is not None else {}, value)
    if not isinstance(value, str):
        return "the answer is not a text"
    if question.choices and value not in question.choices:
        return f"the answer is not one of {', '.join(question.choices)}"
    return ""


def is_wanted(question: Question, text: str) -> bool:
    """Whether the job succeeds with this answer."""
    return question.needs is None or _parsed(text) == (question.needs,)


def question_digest(question: Question) -> str:
    """Stands for the question in the job's manifest: another question is another job."""
    return digest(codec.encode(question))


def answer_output(text: str) -> Output:
    """The answer as the job's one output."""
    return Output(name=ANSWER, type=JSON, text=text)


def answer_in(outputs: tuple[Output, ...]) -> str | None:
    """The answer of a completion; None unless it is its only output, in the record itself."""
    if len(outputs) != 1 or (outputs[0].name, outputs[0].type) != (ANSWER, JSON):
        return None
    return outputs[0].text


def statement_about(predicate: AnswerPredicate) -> AnswerStatement:
    """The statement that is signed."""
    return AnswerStatement(
        type=STATEMENT_TYPE,
        subject=subjects_of(predicate.job, (answer_output(predicate.answer),)),
        predicate_type=PREDICATE_TYPE,
        predicate=predicate,
    )


def is_signed_by_key(said: AnswerStatement, signature: bytes) -> bool:
    """Whether the key that a statement names signed it."""
    key = said.predicate.key
    return signing.is_signed(key, PAYLOAD_TYPE, codec.encode(said), signature)


def in_envelope(said: AnswerStatement, signature: bytes) -> DsseEnvelope:
    """The envelope around a signed statement, for other tools."""
    return DsseEnvelope(
        payload=base64.b64encode(codec.encode(said)).decode(),
        payload_type=PAYLOAD_TYPE,
        signatures=(
            DsseSignature(keyid=said.predicate.key, sig=base64.b64encode(signature).decode()),
        ),
    )


def open_envelope(envelope: DsseEnvelope) -> AnswerStatement | None:
    """The statement in an envelope, whoever signed it; None if it is about something else."""
    try:
        return msgspec.json.decode(base64.b64decode(envelope.payload), type=AnswerStatement)
    except (*UNREADABLE, ValueError):
        return None


def _parsed(text: str) -> tuple[Any] | None:
    """The value of a JSON text; None if it is none, or nested more deeply than people write.

    How deep a parser can go depends on the stack of the moment, and readers must agree.
    """
    if _nesting(text) > MAX_NESTING:
        return None
    try:
        return (msgspec.json.decode(text),)
    except UNREADABLE:
        return None


def _nesting(text: str) -> int:
    """How many objects and arrays are open at once at most."""
    depth = deepest = 0
    for letter in _BRACKETS.findall(_STRINGS.sub("", text)):
        depth += 1 if letter in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
