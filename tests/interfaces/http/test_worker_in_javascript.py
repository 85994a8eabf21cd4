"""`examples/other_language`: a worker that shares no code with this project."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3

from tests.interfaces.http.test_member_routes import CLOSED, a_world
from tests.patience import PATIENCE_S
from tests.runtime.meshes import ops_on_lane
from tests.runtime.messages.post_office import grant

NODE = shutil.which("node")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(NODE is None, reason="there is no node"),
]
EXAMPLE = Path(__file__).parents[3] / "examples" / "other_language"
COUNT, WAIT = "text.count", "text.wait"
LEASED = msgspec.structs.replace(CLOSED, lease_ms=6_000, lease_ms_max=6_000)


async def typed(folder: Path, *words: str) -> str:
    """What the worker prints; it has to end by itself, in order."""
    process = await asyncio.create_subprocess_exec(
        str(NODE),
        *words,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode()


@asynccontextmanager
async def a_worker(folder: Path, rules=CLOSED):
    """A mesh whose owner has delegated to the worker's key, and the worker's command line."""
    did = (await typed(folder, str(EXAMPLE / "worker.mjs"))).strip()
    async with a_world(rules) as world:
        await grant(world.node.mesh, world.owner, did, ("claim",), ("text.*",))
        await world.read()
        url = f"http://127.0.0.1:{world.node.port}"
        yield world, did, (str(EXAMPLE / "worker.mjs"), url, world.node.mesh.mesh)


def test_the_worker_is_short():
    for name in ("worker.mjs", "blake3.mjs"):
        assert len((EXAMPLE / name).read_text().splitlines()) <= 200


async def test_jobs_of_any_text_are_completed_with_proofs_that_every_node_accepts(tmp_path):
    texts = ["one two three", "", 'naïve \u2028 \U0001f3b6 \x7f \\ "', "long " * 2_000]
    async with a_worker(tmp_path) as (world, did, command):
        jobs = [await world.submit(text, kind=COUNT) for text in texts]
        said = await typed(tmp_path, *command, COUNT, str(len(jobs)))
        assert said.count("completed") == len(jobs)
        await world.read()
        other = await world.node.mesh.node()
        await other.reached(await world.count())
        for text, job in zip(texts, jobs, strict=True):
            told = [("job.schedule", "ok"), ("job.claim", "ok"), ("job.complete", "ok")]
            assert ops_on_lane(other, job, COUNT) == told
            read = await world.owner.session.read_lane(COUNT, job)
            ended = read.history[-1].opened.op
            assert (ended.author, read.lane.job.state.value) == (did, "succeeded")
            found = msgspec.json.decode(ended.body.outputs[0].text)
            assert found == {"words": len(text.split()), "letters": len(text)}


async def test_a_long_job_keeps_its_lease_and_a_failing_one_is_given_back(tmp_path):
    async with a_worker(tmp_path, LEASED) as (world, _, command):
        long = await world.submit(2_500, kind=WAIT)
        await typed(tmp_path, *command, WAIT, "1")
        bad = await world.submit(None, kind=COUNT)  # a text is needed
        await typed(tmp_path, *command, COUNT, "1")
        await world.read()
        kinds = [op for op, verdict in ops_on_lane(world.node.node, long, WAIT) if verdict == "ok"]
        assert kinds[:3] == ["job.schedule", "job.claim", "job.claim"]
        assert kinds[-1] == "job.complete"
        assert ops_on_lane(world.node.node, bad, COUNT)[-1] == ("job.yield", "ok")


async def test_its_digests_are_those_of_blake3(tmp_path):
    sizes = (0, 1, 64, 65, 1_024, 1_025, 3_072, 5_000, 31_744)
    script = (
        f'import {{ blake3 }} from "{EXAMPLE / "blake3.mjs"}";'
        f"for (const n of {list(sizes)})"
        " console.log(blake3(Buffer.from(Array.from({ length: n }, (_, i) => i % 251))));"
    )
    found = (await typed(tmp_path, "--input-type=module", "-e", script)).split()
    assert found == [blake3(bytes(i % 251 for i in range(n))).hexdigest() for n in sizes]
