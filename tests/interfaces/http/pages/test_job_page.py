"""The page of one job: what it prints, its steps, what it waits for, and why this worker."""

import asyncio
import re
import sys
from html import unescape

from antiphon import JobContext, Mesh
from antiphon.runtime.worker.job_output import OutputMessage
from antiphon.sdk.archive.erasure import forget_job
from antiphon.sdk.dashboard import live_output
from antiphon.sdk.dashboard.live_output import LiveOutputs, Tail, as_text
from antiphon.sdk.dashboard.views import JobWatch
from tests.interfaces.http.dashboard_browser import signed_in
from tests.interfaces.http.pages.test_for_you import SPITE, shown
from tests.sdk.costs.test_cost import a_mesh as priced_mesh
from tests.sdk.results.test_model_calls import agent


async def test_a_page_that_is_loaded_again_has_what_was_printed_since_it_was_opened():
    mesh, going, opened = Mesh.open(engine="memory"), asyncio.Event(), asyncio.Event()

    @mesh.task("render.frame", keep_output=True)
    async def render(ctx: JobContext) -> str:
        await opened.wait()
        print(f"tile 1 {SPITE}")
        print("tile 2 is slow", file=sys.stderr)
        ctx.progress(0.25, f"tile 2 {SPITE}")
        await going.wait()
        print("the last tile")
        return "done"

    async with mesh, mesh.worker(), signed_in(mesh) as client:
        handle = await render.submit()
        path = f"/jobs/{handle.id}"
        assert 'id="output"' in await shown(client, "holds it", path)
        opened.set()
        page = await shown(client, "25 %", path)
        page = await shown(client, "tile 2 is slow", path)
        assert "live, since this page was opened" in page
        assert "<b>tile 2 is slow" in page, "an error"
        assert SPITE in unescape(page)
        assert "<script>alert" not in page
        going.set()
        await handle.result()
        page = await shown(client, "as the job stored it", path)
        assert "the last tile" in page
        assert re.search('<dt class="m">output</dt>', page), "the outputs are listed"


async def test_a_watcher_is_told_of_output_alone_and_of_the_rest_when_the_job_changes():
    mesh, going, opened = Mesh.open(engine="memory"), asyncio.Event(), asyncio.Event()

    @mesh.task("render.frame")
    async def render() -> None:
        await opened.wait()
        print("a line")
        await going.wait()

    async with mesh, mesh.worker():
        live = LiveOutputs(mesh)
        handle = await render.submit()
        watch = JobWatch(mesh, handle.id, live)
        while (view := await watch.look()) is None or not view.job.claimer:
            await asyncio.sleep(0.02)
        assert not watch.is_output
        while await watch.look() is not None:
            await asyncio.sleep(0.02)
        opened.set()
        while (view := await watch.look()) is None:
            await asyncio.sleep(0.02)
        assert watch.is_output
        assert [one.text for one in view.printed.pieces] == ["a line\n"]
        going.set()
        await handle.result()
        while (view := await watch.look()) is None or not view.job.is_terminal:
            await asyncio.sleep(0.02)
        assert not watch.is_output
        assert [one.text for one in view.printed.pieces] == ["a line\n"], "heard, and not stored"
        live.close()


async def test_steps_questions_and_reasons_are_on_the_page():
    mesh = Mesh.open(engine="memory")

    @mesh.task("order.ship")
    async def ship(ctx: JobContext) -> str:
        await ctx.step(f"charge {SPITE}", lambda: {"receipt": SPITE})
        return await ctx.ask(f"ship? {SPITE}", kind="approve.ship", choices=("yes", "no"))

    async with mesh, mesh.worker(), signed_in(mesh) as client:
        handle = await ship.submit()
        path = f"/jobs/{handle.id}"
        page = await shown(client, "it goes on when they are answered", path)
        question = re.search('for-you#q-([0-9a-f]{64})"', page)[1]
        text = unescape(page)
        assert f"charge {SPITE}" in text
        assert '{"receipt"' in text
        assert f"ship? {SPITE}" in text
        assert "until another job has ended" in text, "what it waits for"
        asked = (await client.get(f"/jobs/{question}")).text
        assert "It waits for an answer." in asked
        assert f'jobs/{handle.id}"' in asked, "who waits for it"
        for one in (page, asked):
            assert "<script>alert" not in one
            assert "<img" not in one
        await client.post("/for-you/answer", data={"job": question, "answer": "no"})
        await handle.result()
        page = await shown(client, "Why this worker", path)
        assert "queue selection, the default" in page.casefold()
        assert "ran it last" in page
        assert "owner answered it." in (await client.get(f"/jobs/{question}")).text
        assert f"ship? {SPITE}" in unescape((await client.get(path)).text)
        await forget_job(mesh, "approve.ship", question)
        page = unescape((await client.get(path)).text)
        assert "forgotten" in page
        assert f"ship? {SPITE}" not in page


async def test_what_a_job_cost_is_on_its_page():
    async with priced_mesh() as mesh, signed_in(mesh) as client:
        handle = await mesh.submit("b.train", 2.0)
        await handle.result()
        page = await shown(client, "<h2>Cost</h2>", f"/jobs/{handle.id}")
        assert "EUR" in re.search("<h2>Cost</h2>.*?</section>", page)[0]


async def test_model_calls_are_told_with_prompt_answer_and_tokens():
    async with Mesh.open(engine="memory") as mesh, signed_in(mesh) as client:
        await mesh.authority.set_rules({"audit_inference": True})
        ask = agent(mesh)
        async with mesh.worker():
            handle = await ask.submit(SPITE)
            await handle.result()
            page = await shown(client, "Model calls", f"/jobs/{handle.id}")
        assert "1. gpt-x" in page
        assert "2 in, 1 out" in page
        assert "alert" in page
        assert "<script>alert" not in page


def heard(number, data, *, at=0, fence="f", stream="stdout"):
    return OutputMessage(fence=fence, number=number, stream=stream, at=at, data=data)


def test_only_the_end_of_what_is_printed_is_kept_and_a_gap_is_said():
    tail = Tail()
    for number in range(100):
        tail.hear(heard(number, b"x" * 1_000, at=number * 1_000))
    found = tail.printed()
    assert sum(len(one.text) for one in found.pieces) <= live_output.LETTERS
    assert found.is_cut
    tail.hear(heard(200, "ü".encode()[:1], fence="g"))
    tail.hear(heard(201, "ü".encode()[1:] + b"!", at=1, fence="g"))
    tail.hear(heard(201, "ü".encode()[1:] + b"!", at=1, fence="g"))
    found = tail.printed()
    assert [one.text for one in found.pieces] == ["ü!"], "another tenure begins anew; nothing twice"
    assert not found.is_cut
    tail.hear(heard(202, b"later", at=50, fence="g"))
    assert tail.printed().is_cut


async def test_only_so_many_jobs_are_listened_to(monkeypatch):
    monkeypatch.setattr(live_output, "JOBS", 2)
    async with Mesh.open(engine="memory") as mesh:
        live = LiveOutputs(mesh)
        for number in range(5):
            live.look("render.frame", f"{number}" * 64)
        assert len(live._jobs) == 2
        live.close()
        assert not live._jobs


async def test_a_job_that_is_looked_at_again_gives_way_to_no_other(monkeypatch):
    monkeypatch.setattr(live_output, "JOBS", 2)
    async with Mesh.open(engine="memory") as mesh:
        live = LiveOutputs(mesh)
        first, second = "1" * 64, "2" * 64
        for job in (first, second, first):
            live.look("render.frame", job)
        live._jobs[second].tail.hear(heard(1, b"kept"))
        for job in (second, first, second):
            found = live.look("render.frame", job)
        assert [one.text for one in found.pieces] == ["kept"]
        live.close()


def test_colours_and_overwritten_lines_are_no_part_of_the_text():
    assert as_text("\x1b[31mred\x1b[0m\r\n10 %\r20 %\nbell\x07\x00\x9b") == "red\n20 %\nbell"
