"""What holds of questions to people: who takes them, what counts as an answer, who goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator

from simulator.checks.law_state import Committed, LaneFacts, LawState, asked_about
from simulator.checks.plain_record import PlainRecord


def taken_by_others(
    ledger: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord
) -> Iterator[str]:
    """A question is taken only by somebody who says so and did not ask it, and nothing else is."""
    if fact.type != "job.claim" or not now.took_effect:
        return
    answers = bool(fact.body.get("answers"))
    if answers != bool(lane.question):
        yield "a question was claimed like a job" if lane.question else "a job like a question"
    if lane.question and fact.author == lane.called.author and ledger.authority_model.is_open:
        yield "whoever asked took the question"
    if lane.question and fact.author in lane.question.get("not_by", ()):
        yield "somebody took the question who is excluded"


def only_answered(_: LawState, lane: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """Whoever holds a question answers it: with one of the choices, to what was asked."""
    if not lane.question or not now.took_effect:
        return
    if fact.type in {"job.start", "job.yield", "job.artifact", "job.offer"}:
        yield f"{fact.type} was accepted on a question"
    if fact.type != "job.complete":
        return
    said = fact.body.get("answered", {})
    if said.get("text") != lane.question["text"]:
        yield "the answer is not to what was asked"
    texts = [one.get("text") for one in fact.body.get("outputs", ())]
    choices = [json.dumps(one) for one in lane.question.get("choices", ())]
    if len(texts) != 1 or texts[0] not in choices:
        yield f"answered {texts}, and the choices are {choices}"


def asked_once(ledger: LawState, _: LaneFacts, now: Committed, fact: PlainRecord) -> Iterator[str]:
    """An honest job asks each of its questions once, whichever of its runs does.

    The words of simulated questions differ, but for the answer that one follows from.
    """
    question = fact.body.get("question") if fact.type == "job.schedule" else None
    if question is None or not now.took_effect or not now.is_honest:
        return
    before = ledger.asked.get(asked_about(question["text"]))
    if before is not None and before != now.key:
        yield f"{question['text']!r} was asked before, as {before}"


LAWS = (taken_by_others, only_answered, asked_once)
