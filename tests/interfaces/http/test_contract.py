"""Every path of the OpenAPI document, asked with what the document permits and what it does not.

    ANTIPHON_CONTRACT=20000 python -m pytest tests/interfaces/http/test_contract.py

In CI each path is asked in one of the two ways, a few times: to compile what a path takes costs
more than to ask it.
"""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.state import EMPTY
from antiphon.guard import Guard
from antiphon.interfaces.http import openapi
from antiphon.runtime.log.writer import Intent, write_one
from antiphon.sdk.webhooks.hook_file import Hook
from tests.interfaces.http.client import OPERATOR, served
from tests.interfaces.http.test_api import post, submitted
from tests.interfaces.http.test_questions_and_messages import asked
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.processes

ASKED = int(os.environ.get("ANTIPHON_CONTRACT", "0"))
"""Requests in all; 0: few."""
FEW = 2
DOCUMENT = schemathesis.openapi.from_dict(openapi.document())
OPERATIONS = [one.ok() for one in DOCUMENT.get_all_operations()]
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
MODES = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
HOOK = Hook(secret="what-the-test-knows", submit="build.app", plain=True)


class OneHook:
    def hook(self, name: str) -> Hook | None:
        return HOOK


class Asked:
    """A node with something of everything, in a thread of its own."""

    def __init__(self) -> None:
        self.url = ""
        self.ended = self.open = self.question = self.message = ""
        self._is_ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    async def _run(self) -> None:
        async with served(hooks=OneHook()) as node:
            self.open = await submitted(node, args=[1])
            self.ended = await submitted(node, args=[2])
            await post(node, f"/v1/jobs/{self.ended}/cancel", {"reason": "not wanted"})
            session = (await node.mesh.connection()).session
            body = ClaimBody(kind="build.app", job=self.open, lease_ms=600_000, begin=True)
            await write_one(session, Intent(JobClaim, body, EMPTY))
            self.question = await asked(node, session)
            to = f"{node.mesh.owner.did}/desk"
            self.message = (await post(node, "/v1/messages", {"to": to})).json["id"]
            self.url = f"http://127.0.0.1:{node.port}"
            self._is_ready.set()
            await self._over.wait()

    @contextmanager
    def running(self) -> Iterator["Asked"]:
        self._thread.start()
        try:
            assert self._is_ready.wait(PATIENCE_S)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(PATIENCE_S)
            self._loop.close()


@pytest.fixture(scope="module")
def node():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Guard, "rest_s", lambda *_: 0.0)
        with Asked().running() as found, requests.Session() as session:
            found.session = session
            yield found


def prepared(case, node, data) -> None:
    """Ask about what there is, in half of the cases; and wait for nothing."""
    streams = case.path.endswith(("/events", "/log"))
    named = {
        "job": [node.ended] if streams else [node.ended, node.open, node.question],
        "message": [node.message],
        "hook": ["any"],
        "space": ["notes"],
        "reason": ["paused"],
        "name": ["result"],
    }
    for name in case.path_parameters or {}:
        if streams or data.draw(st.booleans()):
            case.path_parameters[name] = data.draw(st.sampled_from(named[name]))
    if case.operation.label == "POST /v1/messages/take" and isinstance(case.body, dict):
        case.body["wait"] = 0


@pytest.mark.parametrize("mode", MODES, ids=[one.value for one in MODES])
def test_no_request_is_a_fault_of_the_node_and_every_answer_is_what_the_document_says(node, mode):
    each = ASKED // len(OPERATIONS) // len(MODES) or FEW
    count = 0
    for operation in OPERATIONS if ASKED else OPERATIONS[MODES.index(mode) :: len(MODES)]:
        try:
            cases = operation.as_strategy(generation_mode=mode)
            cases.validate()
        except schemathesis.errors.IncorrectUsage:
            continue

        @seed(41)
        @settings(
            max_examples=each, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=cases, data=st.data())
        def ask(case, data):
            nonlocal count
            prepared(case, node, data)
            headers = {"Authorization": f"Bearer {OPERATOR}"}
            if "/v1/hooks/" in case.path:
                headers = {"Authorization": f"Bearer {HOOK.secret}"}
            answer = case.call(base_url=node.url, session=node.session, headers=headers, timeout=60)
            case.validate_response(answer, checks=CHECKS)
            count += 1

        ask()
        print(f"{count} requests, with {operation.label}", flush=True)
