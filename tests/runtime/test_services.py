"""Services beside a block: what comes out when one of them fails."""

import asyncio

import pytest

from antiphon.errors import Conflict, Rejected, Unavailable
from antiphon.runtime.services import beside


async def failing(*errors):
    async def fail(error):
        raise error

    async with asyncio.TaskGroup() as tasks:
        for error in errors:
            tasks.create_task(fail(error))


async def outcome_of(*errors, ready=None):
    async with beside(failing(*errors), ready=ready):
        await asyncio.sleep(5)


async def test_a_service_that_fails_before_it_is_ready_says_why_without_a_wrapping():
    with pytest.raises(Conflict, match="held"):
        await outcome_of(Conflict("held"), ready=asyncio.Event())


async def test_of_several_causes_the_one_that_waiting_cannot_mend_is_told():
    with pytest.raises(Rejected, match="not allowed"):
        await outcome_of(Unavailable("away"), Rejected("not allowed", reason="policy"))


async def test_a_bug_among_them_is_not_hidden():
    with pytest.raises(ExceptionGroup) as told:
        await outcome_of(Unavailable("away"), ZeroDivisionError("a bug"))
    assert told.group_contains(ZeroDivisionError)


async def test_the_blocks_own_errors_pass_as_they_are():
    with pytest.raises(ExceptionGroup, match="mine"):
        async with beside(asyncio.sleep(5)):
            raise ExceptionGroup("mine", [Conflict("held")])
