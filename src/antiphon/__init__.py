"""Antiphon: a job mesh whose every step is signed, ordered and checkable.

This module has the public names. They are imported on first use, so importing the package is
cheap. Nothing inside the package imports this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.lazy_names import from_modules

if TYPE_CHECKING:
    __version__: str

    from antiphon.core.families.jobs.state import Job, State
    from antiphon.core.manifest import Manifest
    from antiphon.core.record.verdict import Verdict
    from antiphon.core.tempo.score import Score
    from antiphon.errors import (
        After,
        AntiphonError,
        CircuitOpen,
        Conflict,
        Corrupt,
        Forked,
        GiveUp,
        Held,
        InboxFull,
        JobFailed,
        LockLost,
        Malformed,
        Misconfigured,
        NoAnswer,
        NobodyAnswers,
        OutcomeUnknown,
        Overrun,
        PartlySubmitted,
        RateLimited,
        Rejected,
        RetryLater,
        StaleFence,
        Unavailable,
        WaitExhausted,
    )
    from antiphon.runtime.caller.job_status import JobStatus
    from antiphon.runtime.executors.executor import Assignment, Ran
    from antiphon.runtime.executors.handler_call import Child, JobContext
    from antiphon.runtime.executors.hooks import Hook
    from antiphon.sdk.blocking.blocking_graph import BlockingGraph
    from antiphon.sdk.blocking.blocking_handle import BlockingHandle
    from antiphon.sdk.blocking.blocking_mesh import BlockingMesh
    from antiphon.sdk.blocking.blocking_task import BlockingAsyncTask, BlockingTask
    from antiphon.sdk.call_options import CallOptions, Retry, TaskOptions
    from antiphon.sdk.graphs.graph import Graph
    from antiphon.sdk.handle import JobHandle, StreamHandle
    from antiphon.sdk.locks.fenced_file import FencedFile
    from antiphon.sdk.locks.lock import Lock
    from antiphon.sdk.locks.namespace import LockStatus
    from antiphon.sdk.many.bound_calls import Call, as_completed, gather
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.messages.http_sender import HttpSender
    from antiphon.sdk.plans.namespace import PlanStatus
    from antiphon.sdk.plans.triggers import cron, on
    from antiphon.sdk.task import AsyncTask, StreamTask, Task

_WHERE = {
    "After": "antiphon.errors",
    "Child": "antiphon.runtime.executors.handler_call",
    "Graph": "antiphon.sdk.graphs.graph",
    "BlockingGraph": "antiphon.sdk.blocking.blocking_graph",
    "AntiphonError": "antiphon.errors",
    "Assignment": "antiphon.runtime.executors.executor",
    "AsyncTask": "antiphon.sdk.task",
    "BlockingAsyncTask": "antiphon.sdk.blocking.blocking_task",
    "BlockingHandle": "antiphon.sdk.blocking.blocking_handle",
    "BlockingMesh": "antiphon.sdk.blocking.blocking_mesh",
    "BlockingTask": "antiphon.sdk.blocking.blocking_task",
    "CallOptions": "antiphon.sdk.call_options",
    "Call": "antiphon.sdk.many.bound_calls",
    "CircuitOpen": "antiphon.errors",
    "Conflict": "antiphon.errors",
    "Corrupt": "antiphon.errors",
    "FencedFile": "antiphon.sdk.locks.fenced_file",
    "Forked": "antiphon.errors",
    "GiveUp": "antiphon.errors",
    "Held": "antiphon.errors",
    "Hook": "antiphon.runtime.executors.hooks",
    "HttpSender": "antiphon.sdk.messages.http_sender",
    "Job": "antiphon.core.families.jobs.state",
    "JobContext": "antiphon.runtime.executors.handler_call",
    "InboxFull": "antiphon.errors",
    "JobFailed": "antiphon.errors",
    "JobHandle": "antiphon.sdk.handle",
    "JobStatus": "antiphon.runtime.caller.job_status",
    "Lock": "antiphon.sdk.locks.lock",
    "LockLost": "antiphon.errors",
    "LockStatus": "antiphon.sdk.locks.namespace",
    "Malformed": "antiphon.errors",
    "Manifest": "antiphon.core.manifest",
    "Mesh": "antiphon.sdk.mesh",
    "Misconfigured": "antiphon.errors",
    "NoAnswer": "antiphon.errors",
    "NobodyAnswers": "antiphon.errors",
    "OutcomeUnknown": "antiphon.errors",
    "Overrun": "antiphon.errors",
    "PartlySubmitted": "antiphon.errors",
    "PlanStatus": "antiphon.sdk.plans.namespace",
    "Ran": "antiphon.runtime.executors.executor",
    "Verdict": "antiphon.core.record.verdict",
    "RateLimited": "antiphon.errors",
    "Rejected": "antiphon.errors",
    "Retry": "antiphon.sdk.call_options",
    "RetryLater": "antiphon.errors",
    "Score": "antiphon.core.tempo.score",
    "StaleFence": "antiphon.errors",
    "State": "antiphon.core.families.jobs.state",
    "StreamHandle": "antiphon.sdk.handle",
    "StreamTask": "antiphon.sdk.task",
    "Task": "antiphon.sdk.task",
    "TaskOptions": "antiphon.sdk.call_options",
    "Unavailable": "antiphon.errors",
    "WaitExhausted": "antiphon.errors",
    "as_completed": "antiphon.sdk.many.bound_calls",
    "cron": "antiphon.sdk.plans.triggers",
    "gather": "antiphon.sdk.many.bound_calls",
    "on": "antiphon.sdk.plans.triggers",
}

__all__ = [
    "After",
    "AntiphonError",
    "Assignment",
    "AsyncTask",
    "BlockingAsyncTask",
    "BlockingGraph",
    "BlockingHandle",
    "BlockingMesh",
    "BlockingTask",
    "Call",
    "CallOptions",
    "Child",
    "CircuitOpen",
    "Conflict",
    "Corrupt",
    "FencedFile",
    "Forked",
    "GiveUp",
    "Graph",
    "Held",
    "Hook",
    "HttpSender",
    "InboxFull",
    "Job",
    "JobContext",
    "JobFailed",
    "JobHandle",
    "JobStatus",
    "Lock",
    "LockLost",
    "LockStatus",
    "Malformed",
    "Manifest",
    "Mesh",
    "Misconfigured",
    "NoAnswer",
    "NobodyAnswers",
    "OutcomeUnknown",
    "Overrun",
    "PartlySubmitted",
    "PlanStatus",
    "Ran",
    "RateLimited",
    "Rejected",
    "Retry",
    "RetryLater",
    "Score",
    "StaleFence",
    "State",
    "StreamHandle",
    "StreamTask",
    "Task",
    "TaskOptions",
    "Unavailable",
    "Verdict",
    "WaitExhausted",
    "as_completed",
    "cron",
    "gather",
    "on",
]


_find = from_modules(__name__, _WHERE)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from antiphon.runtime.identity.host_clock import installed_version

        return installed_version()
    return _find(name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
