"""`chaos offline`, as small as it still shows something; and its audit sees what is wrong."""

import json
import subprocess
import sys

import pytest
from msgspec.structs import replace

from antiphon import JobContext
from antiphon.core.families.memory.ops import Inline, Stored
from antiphon.core.families.memory.writing import Wanted
from antiphon.runtime.caller import submission
from antiphon.runtime.memory.documents import Documents
from chaos.offline.archived import told_after_an_archive
from chaos.offline.audit import judged, judged_run
from chaos.offline.command import Run, execute
from chaos.offline.process import SPACE, Deed, Line
from tests.chaos.network.namespace_skip import leave_out
from tests.runtime.meshes import CALM, KIND, a_mesh, call


@pytest.mark.nats
@pytest.mark.long
@pytest.mark.req("P12", "S16")
async def test_two_laptops_that_are_killed_without_a_connection_come_to_one_result(capsys):
    code = await execute(Run(rounds=2, first_step=7))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0, said
    assert (said["agreed"], said["lost"], said["twice"]) == (2, 0, 0)
    assert said["dropped_told"] == 2, "of two values from one revision, one holds"
    assert said["steps_killed"] == 4
    assert said["steps"]["work"] > 20, "and a worker lost its connection in the middle of a job"
    assert said["network"] == "proxies"


@pytest.mark.nats
@pytest.mark.long
def test_laptops_on_networks_of_their_own_come_to_one_result_too():
    command = [sys.executable, "-m", "chaos", "offline", "--rounds", "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert (said["agreed"], said["dropped_told"]) == (1, 1)
    if said["network"] != "namespaces":
        assert "with proxies instead" in ended.stderr
        leave_out(ended.stderr.strip())


@pytest.mark.parametrize("knows", [True, False])
def test_a_job_that_was_archived_meanwhile_never_runs_again(tmp_path, knows):
    assert told_after_an_archive(tmp_path, knows=knows) == ("held" if knows else "asks")


async def written(session, *, base: int) -> int:
    value = Inline(text='"mine"')
    wanted = Wanted(space=SPACE, key="plan", agent="main", value=value, base=base)
    return (await Documents(session).put(wanted)).document.revision


@pytest.mark.virtual_time
async def test_the_audit_finds_what_is_lost_doubled_or_told_wrongly():
    deeds = (
        Deed(what="put", text="mine", where="plan"),
        Deed(what="message", text="hello", where="somebody"),
    )
    put, message = f"{SPACE}/plan", "id of hello"
    kept = [Line("kept", 0, put), Line("kept", 1, message)]
    held = [Line("told", 0, put, "held"), Line("told", 0, message, "held")]
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session

        async def found(lines, read):
            findings = await judged(session, deeds, lines, session.author.did, read)
            return len(findings.lost), len(findings.twice), len(findings.disagreed)

        assert await found([*kept, *held], []) == (2, 0, 0), "told as held, and not there"
        first = await written(session, base=0)
        assert await found([*kept, *held], ["hello"]) == (0, 0, 0)
        assert await found(kept, ["hello"]) == (2, 0, 0), "nothing was told"
        dropped = Line("told", 0, put, "dropped", "why")
        assert await found([*kept, dropped, held[1]], ["hello"]) == (0, 0, 1)
        await written(session, base=first)
        assert await found([*kept, *held], ["hello"] * 2) == (0, 2, 0)


@pytest.mark.virtual_time
async def test_the_audit_of_runs_finds_what_is_lost_or_counts_though_another_took_over():
    made = [Line("made", number, "", state) for number, state in enumerate(("small", "end"))]
    dropped = Line("ran", 0, "", "dropped", "another worker took over (fence)")
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session

        async def small() -> str:
            return "small"

        async def work(ctx: JobContext) -> str:
            return await ctx.step("small", small)

        worker = await mesh.worker(work)
        job = await call(session)
        await submission.wait_for_end(session, KIND, job.id)

        async def found(lines, *, did=worker.did, is_taken=False):
            named = [replace(one, name=job.id) for one in lines]
            one = await judged_run(session, named, (KIND, job.id), did, is_taken=is_taken)
            return len(one.lost), len(one.twice), len(one.disagreed), one.dropped_told

        assert await found(made) == (0, 0, 0, 0)
        assert await found([]) == (0, 0, 0, 0), "it was killed before it promised anything"
        assert await found([*made, dropped]) == (0, 0, 1, 0), "told as dropped, and there"
        assert await found([*made, made[1]]) == (1, 0, 0, 0), "more was promised than is there"
        assert await found([*made, dropped], is_taken=True) == (0, 1, 0, 1)
        other = session.author.did
        assert await found(made, did=other, is_taken=True) == (1, 0, 0, 0), "nothing was told"
        assert await found([*made, dropped], did=other, is_taken=True) == (0, 0, 0, 1)
        assert await found([*made, dropped, dropped], did=other, is_taken=True) == (0, 0, 1, 1)


@pytest.mark.virtual_time
async def test_the_audit_finds_what_is_named_and_not_stored():
    deeds = (Deed(what="put", text="large", where="plan"), Deed(what="file", text="large"))
    large = Stored(hash=f"blake3:{'a' * 64}", size=100_000)
    lines = [Line("kept", 0, f"{SPACE}/plan"), Line("kept", 1, "a" * 64)]
    lines += [Line("told", 0, one.name, "held") for one in lines]
    async with a_mesh("memory", CALM) as mesh:
        session = (await mesh.connection()).session
        wanted = Wanted(space=SPACE, key="plan", agent="main", value=large, base=0)
        await Documents(session).put(wanted)
        findings = await judged(session, deeds, lines, session.author.did, [])
        assert len(findings.lost) == 2
