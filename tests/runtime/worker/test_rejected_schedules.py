"""A schedule that was rejected is nobody's job: its announcement is dropped, and a log says why."""

from structlog.testing import capture_logs

from antiphon.core.authority.rules import Rules
from tests.runtime.log.test_first_verdicts import submit
from tests.runtime.meshes import a_mesh, eventually, on_both_engines


@on_both_engines
async def test_a_worker_says_why_it_drops_the_announcement_of_a_rejected_schedule(engine):
    async def echo(number: int) -> int:
        return number

    async with a_mesh(engine, Rules(max_drift_ms=100)) as mesh:
        await mesh.worker(echo)
        stranger = (await mesh.connection()).session
        with capture_logs() as logged:
            await submit(stranger)
            await eventually(lambda: any(one["event"] == "announcement_dropped" for one in logged))
        (dropped,) = [one for one in logged if one["event"] == "announcement_dropped"]
        assert dropped["verdict"] == "no_chain"
        assert dropped["log_level"] == "debug"
