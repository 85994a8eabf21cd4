"""The paths below `/v1` that programs use, as data: the routes and the OpenAPI document follow."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from msgspec import structs

from antiphon.interfaces.http.route import REQUESTS, STREAMS, Limits
from antiphon.sdk.defaults import StateName
from antiphon.sdk.http import models
from antiphon.sdk.http.node_api import (
    ANSWER_BY,
    CANCEL_BY,
    DOCUMENTS_READ_BY,
    LOCKS_READ_BY,
    READ_BY,
    SCHEDULE_BY,
    SEND_BY,
)

LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 500, "default": 50}
MOST_CHARACTERS: Final = 1_000
CURSOR: Final = {"type": "string", "maxLength": 2_048}
SIGNED: Final = ()
"""What is signed with a webhook's secret needs no command of a token."""
VERIFIED: Final = structs.replace(
    REQUESTS, room="http verify", of_party=1, in_all=2, request_bytes=1024 * 1024, work_s=4.0
)
"""A bundle of that size takes a machine about 0.8 s."""
BUNDLES: Final = structs.replace(REQUESTS, room="http bundles", of_party=2, in_all=4, work_s=2.0)
MAX_LINK: Final = 6_000
"""Characters of a link."""
TEXT: Final = {"type": "string", "maxLength": MOST_CHARACTERS}
STATES: Final = [state.value for state in StateName]


class Param(NamedTuple):
    """Something that a query may say."""

    name: str
    says: str
    schema: dict[str, Any] = TEXT


class Endpoint(NamedTuple):
    """One method of one path."""

    method: str
    path: str
    name: str
    """Of the method that answers it."""
    says: str
    under: tuple[str, ...]
    """The commands that show or change this: a token needs one of them."""
    limits: Limits
    """How much it may take, and what it shares that with."""
    answer: Any
    """The type of the answer; a media type for what is not JSON."""
    params: tuple[Param, ...] = ()
    body: Any = None
    """The type of the body; a media type for what is not JSON."""
    status: int = 200
    linked: Literal["", "story", "outputs"] = ""
    """Whether a link to the job opens it; only a link with outputs if it is one of those."""


PAGED: Final = (
    Param("limit", "So many at most.", LIMIT),
    Param("after", "The `next` of the page before.", CURSOR),
)
JOB_FILTERS: Final = (
    Param("state", "In this state; may be repeated.", {"type": "string", "enum": STATES}),
    Param("kind", "Of this kind and the kinds below it."),
    Param("since", "Submitted then or later: ISO 8601 with its zone, or how long ago: `2h`."),
    Param("until", "Submitted before then."),
    Param("by", "Submitted by this node: a did:key, or an alias."),
    Param("worker", "Held, or run last, by this node."),
    Param("label", "With this label."),
    Param("plan", "Derived from a plan of this name."),
    Param("text", "Whose newest error has these words."),
    Param("graph", "Connected with this job."),
)
_KIND: Final = Param("kind", "Of this kind and the kinds below it.")
_AGENT: Final = Param("agent", "Whose inbox; the node's own program without it.")
COST_BY: Final = ("kind", "node", "account")
_BY: Final = Param(
    "by", "A line for each of these.", {"type": "string", "enum": [*COST_BY], "default": "kind"}
)
_SINCE: Final = Param(
    "since", "Ended then or later: ISO 8601 with its zone, or how long ago: `2h`."
)

ENDPOINTS: Final = (
    Endpoint("GET", "/v1/jobs", "jobs",
             "Jobs, newest first",
             READ_BY, REQUESTS, models.JobList, (*JOB_FILTERS, *PAGED)),
    Endpoint("POST", "/v1/jobs", "submit",
             "Submit a job; with the header `Idempotency-Key`, the same again is the same job",
             SCHEDULE_BY, REQUESTS, models.Submitted, body=models.SubmitBody, status=201),
    Endpoint("GET", "/v1/jobs/{job}", "job",
             "One job, by its id or the beginning of it",
             READ_BY, REQUESTS, models.JobView, linked="story"),
    Endpoint("POST", "/v1/jobs/{job}/links", "link",
             "Make a link that shows this job to whoever has it, until a time; for the operator",
             READ_BY, REQUESTS, models.LinkMade, body=models.LinkBody, status=201),
    Endpoint("POST", "/v1/jobs/{job}/cancel", "cancel",
             "Cancel a job that has not ended",
             CANCEL_BY, REQUESTS, models.JobView, body=models.CancelBody),
    Endpoint("POST", "/v1/jobs/{job}/retry", "retry",
             "Submit a job again that ended without a result",
             SCHEDULE_BY, REQUESTS, models.Submitted, status=201),
    Endpoint("GET", "/v1/jobs/{job}/events", "events",
             "A job as it is, and its records as they come, as server-sent events",
             READ_BY, STREAMS, "text/event-stream", linked="story"),
    Endpoint("GET", "/v1/jobs/{job}/log", "printed",
             "What a running job prints from now on, and its progress, as server-sent events",
             READ_BY, STREAMS, "text/event-stream", linked="outputs"),
    Endpoint("GET", "/v1/jobs/{job}/outputs", "outputs",
             "What a job wrote",
             READ_BY, REQUESTS, models.OutputList, linked="outputs"),
    Endpoint("GET", "/v1/jobs/{job}/outputs/{name}", "output",
             "The content of an output, or a range of it",
             READ_BY, STREAMS, "application/octet-stream", linked="outputs"),
    Endpoint("GET", "/v1/jobs/{job}/proof", "proof",
             "The proof of a job's completion",
             READ_BY, REQUESTS, models.Envelope, linked="story"),
    Endpoint("GET", "/v1/jobs/{job}/bundle", "bundle",
             "The bundle of a job that is sealed: its records, for verification offline",
             READ_BY, BUNDLES, "application/octet-stream", linked="outputs"),
    Endpoint("POST", "/v1/verify", "verify",
             "Check a bundle",
             READ_BY, VERIFIED, models.Verified, body="application/octet-stream"),
    Endpoint("GET", "/v1/questions", "questions",
             "Questions that nobody has answered, the oldest first",
             READ_BY, REQUESTS, models.QuestionList, (_KIND, *PAGED)),
    Endpoint("GET", "/v1/questions/{job}", "question",
             "One question, with its answer if there is one",
             READ_BY, REQUESTS, models.QuestionView),
    Endpoint("POST", "/v1/questions/{job}/answer", "answer",
             "Answer a question with the node's key; the same again changes nothing",
             ANSWER_BY, REQUESTS, models.AnswerGiven, body=models.AnswerBody, status=201),
    Endpoint("GET", "/v1/messages", "threads",
             "The threads of an inbox",
             SEND_BY, REQUESTS, models.ThreadList, (_AGENT, *PAGED)),
    Endpoint("POST", "/v1/messages", "send",
             "Send a message to an agent; with the header `Idempotency-Key`, the same again is the"
             " same message",
             SEND_BY, REQUESTS, models.MessageSent, body=models.SendBody),
    Endpoint("POST", "/v1/messages/take", "take",
             "Hand out the next messages of an inbox",
             SEND_BY, REQUESTS, models.TakenMessages, body=models.TakeBody),
    Endpoint("POST", "/v1/messages/{message}/ack", "ack",
             "A message was handled",
             SEND_BY, REQUESTS, models.Acknowledged, body=models.AckBody),
    Endpoint("GET", "/v1/cost", "cost",
             "What the jobs cost that ended",
             READ_BY, REQUESTS, models.CostView, (_BY, _SINCE, _KIND)),
    Endpoint("GET", "/v1/counts", "counts",
             "How many jobs are in each state",
             READ_BY, REQUESTS, models.Counts, (_KIND,)),
    Endpoint("GET", "/v1/kinds", "kinds",
             "The same for each kind",
             READ_BY, REQUESTS, models.KindList, PAGED),
    Endpoint("GET", "/v1/nodes", "nodes",
             "Nodes that are online",
             READ_BY, REQUESTS, models.NodeList, PAGED),
    Endpoint("GET", "/v1/plans", "plans",
             "Plans that stand",
             READ_BY, REQUESTS, models.PlanList, PAGED),
    Endpoint("GET", "/v1/locks", "locks",
             "Locks that are held",
             LOCKS_READ_BY, REQUESTS, models.LockList, (Param("scope", "Of this scope."), *PAGED)),
    Endpoint("GET", "/v1/documents/{space}", "documents",
             "Documents of a space",
             DOCUMENTS_READ_BY, REQUESTS, models.DocumentList, (Param("prefix",
             "Whose keys begin so."), *PAGED)),
    Endpoint("GET", "/v1/limits", "limits",
             "Labels and their limits; every project",
             READ_BY, REQUESTS, models.LimitList, PAGED),
    Endpoint("GET", "/v1/pauses", "pauses",
             "What nobody may begin now",
             READ_BY, REQUESTS, models.PauseList),
    Endpoint("GET", "/v1/refusals", "refusals",
             "Records that took no effect, newest first",
             READ_BY, REQUESTS, models.RefusalList, (_KIND, *PAGED)),
    Endpoint("GET", "/v1/attention", "attention",
             "What needs attention, newest first",
             READ_BY, REQUESTS, models.AttentionList, PAGED),
    Endpoint("GET", "/v1/reports", "reports",
             "Bar reports, newest first; every project",
             READ_BY, REQUESTS, models.ReportList, PAGED),
    Endpoint("POST", "/v1/hooks/{hook}", "hook",
             "A webhook of another system: it becomes a job, or answers a question",
             SIGNED, REQUESTS, models.HookDone, body="application/json", status=201),
    Endpoint("GET", "/v1/problems/{reason}", "problem_words",
             "What a reason means",
             READ_BY, REQUESTS, models.Problem),
)  # fmt: skip
