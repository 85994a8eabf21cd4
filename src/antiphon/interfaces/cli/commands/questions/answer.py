"""`antiphon answer`: answers a question, typed as an argument or in a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.lookup import JobArgument
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import out
from antiphon.interfaces.cli.shared.answer_form import filled_in, read_value

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Mesh

ValueArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[ANSWER]",
        help="One of the choices, a text, or JSON where the question has a form.",
        show_default=False,
    ),
]


@command
async def answer(
    mesh: Mesh, as_json: bool, job: JobArgument, value: ValueArgument = None
) -> Answer:
    """Answer a question. Without an answer you are shown the question, and a form.

    Your key signs the question and your answer, and the job that asked goes on. It takes the right
    'answer' for the question's kind. A script can answer, too.

    \b
      antiphon answer 3f9a yes
      antiphon answer 3f9a
      antiphon answer 3f9a '{"replicas": 3, "region": "eu"}'
    """  # noqa: D301 - \b keeps the lines apart
    question = await mesh.questions.find(job)
    said = filled_in(question, as_json=as_json) if value is None else read_value(question, value)
    ended = await mesh.questions.answer(question.kind, question.job_id, said)

    def words() -> None:
        name = f"{question.kind} {short(question.job_id)}"
        out.pieces(("✓ answered", "succeeded"), (f"  {name}: {question.text}", ""))
        if question.quorum:
            out.say(f"  {question.quorum} of {question.people} people have to agree")

    facts = {
        "kind": question.kind,
        "job": question.job_id,
        "answer": said,
        "answered": ended.id,
        "outcome": ended.outcome,
    }
    return Answer(facts, words)
