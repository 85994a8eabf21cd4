"""*For you*: what waits for a person, answers that they sign, and what they may not answer."""

import asyncio
import re
from contextlib import asynccontextmanager
from html import unescape

import pytest
from msgspec.structs import replace

from antiphon import JobContext, JobFailed, Mesh
from antiphon.runtime.caller import submission
from tests.interfaces.http.dashboard_browser import signed_in
from tests.patience import PATIENCE_S

SPITE = "<script>alert('1')</script>\"'><img src=x>"
FORM = {
    "type": "object",
    "required": ["region", "count"],
    "properties": {
        "region": {"enum": ["eu", "us"], "title": "Where"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "careful": {"type": "boolean"},
        "note": {"type": "string", "maxLength": 50},
        "limits": {"type": "object", "properties": {"cpu": {"type": "number"}}},
        "hosts": {"type": "array", "items": {"type": "string"}},
    },
}


def a_mesh(text, **asked):
    """A mesh whose one task asks a question and returns the answer."""
    mesh = Mesh.open(engine="memory")

    @mesh.task("deploy.web", attempts=1)
    async def deploy(ctx: JobContext) -> object:
        return await ctx.ask(text, kind="approve.deploy", **asked)

    mesh.deploy = deploy
    return mesh


async def shown(client, wanted, path="/for-you"):
    """The page, once it has these words."""
    async with asyncio.timeout(PATIENCE_S):
        while wanted not in (answer := await client.get(path)).text:
            assert answer.status_code == 200, answer.text
            await asyncio.sleep(0.02)
    return answer.text


def job_in(page):
    return re.search('name="job" value="([0-9a-f]{64})"', page)[1]


async def test_a_choice_is_signed_with_the_key_that_the_page_names_and_the_job_goes_on():
    mesh = a_mesh("deploy 7?", choices=("yes", "no"))
    async with mesh, mesh.worker(), signed_in(mesh) as client:
        handle = await mesh.deploy.submit()
        page = await shown(client, f'jobs/{handle.id}"')  # written after the question
        assert "deploy 7?" in page
        assert re.search(f"signed with <b>{mesh.alias}</b>.*{mesh.did[-8:]}", page)
        assert f"You answer for {mesh.alias}" in page
        assert 'For you<sup>1<span class="vh"> waiting' in (await client.get("/jobs")).text
        question = job_in(page)
        done = await client.post("/for-you/answer", data={"job": question, "answer": "yes"})
        assert "answered, signed with" in done.text
        assert await handle.result() == "yes"
        view = await mesh.job("approve.deploy", question).lane()
        assert view.history[-1].opened.op.author == mesh.did
        again = await client.post("/for-you/answer", data={"job": question, "answer": "no"})
        assert again.status_code == 403
        assert "not open any more" in again.text
        assert "Nothing waits for you" in (await client.get("/for-you")).text


async def test_a_schema_becomes_a_form_that_needs_no_script_and_keeps_what_was_typed():
    mesh = a_mesh("how?", schema=FORM)
    async with mesh, mesh.worker(), signed_in(mesh) as client:
        handle = await mesh.deploy.submit()
        page = await shown(client, "how?")
        names = dict(re.findall('<label for="[0-9a-f]+-(answer[.0-9]+)">([^<]+)', page))
        assert names["answer.0"] == "Where"
        assert names["answer.2"] == "careful (may be left out)"
        assert names["answer.4.0"] == "cpu (may be left out)"
        assert names["answer.5"] == "hosts, as JSON (may be left out)"
        assert 'type="number" step="1" min="1" max="9"' in page
        typed = {"job": job_in(page), "answer.0": "1", "answer.1": "12", "answer.3": "slowly"}
        for count, why in (("many", "is not a number"), ("12", "count of the answer is above 9")):
            wrong = await client.post("/for-you/answer", data=typed | {"answer.1": count})
            assert why in unescape(wrong.text)
            assert 'value="slowly"' in wrong.text, "nobody types it twice"
        typed |= {"answer.1": "3", "answer.2": "no", "answer.4.0": "1.5", "answer.5": '["a"]'}
        assert "answered, signed" in (await client.post("/for-you/answer", data=typed)).text
        assert await handle.result() == {
            "region": "us",
            "count": 3,
            "careful": False,
            "note": "slowly",
            "limits": {"cpu": 1.5},
            "hosts": ["a"],
        }


async def test_whoever_asks_or_is_excluded_is_told_so_and_gets_no_form():
    mesh = a_mesh("unused")
    async with mesh, signed_in(mesh) as client:
        own = await mesh.questions.ask("may I?", kind="approve.own", choices=("yes",))
        page = await shown(client, "may I?")
        assert f"{mesh.alias} asks this, and whoever asks cannot answer".casefold() in (
            page.casefold()
        )
        assert "/for-you/answer" not in page
        refused = await client.post("/for-you/answer", data={"job": own.id, "answer": "yes"})
        assert refused.status_code == 403
        assert "whoever asks cannot answer" in refused.text
        await own.cancel("")
    excluding = Mesh.open(engine="memory")

    @excluding.task("deploy.web")
    async def deploy(ctx: JobContext) -> str:
        return await ctx.ask("ship?", kind="approve.deploy", not_by=[ctx.submitter])

    async with excluding, excluding.worker(), signed_in(excluding) as client:
        await deploy.submit()
        page = await shown(client, "ship?")
        assert f"The question excludes {excluding.alias}" in page
        assert "/for-you/answer" not in page


@pytest.mark.parametrize(
    "chosen, left", [("there", 2), ("sibling", 3), ("written", {"third": [4]})]
)
async def test_a_conflict_is_shown_with_its_values_and_ends_with_the_one_that_is_chosen(
    chosen, left
):
    async with Mesh.open(engine="memory") as mesh, signed_in(mesh) as client:
        notes = mesh.memory["notes"]
        old = (await notes.put("plan", 1)).document
        await notes.put("plan", 2, base=old)
        await notes.put("plan", 3, base=old, strategy="defer")
        page = (await client.get("/for-you")).text
        both = "There now.*<pre[^>]*>2</pre>.*Beside it.*<pre[^>]*>3</pre>"
        assert re.search(both, page, re.DOTALL)
        (sibling,) = re.findall('name="sibling" value="(.+?)"', page)
        sent = dict(re.findall('name="(space|key|revision)" value="(.+?)"', page))
        sent |= {"sibling": sibling, "written": '{"third": [4'}
        if chosen == "written":
            wrong = await client.post("/for-you/resolve", data=sent | {"chosen": chosen})
            assert "is not JSON" in wrong.text
        sent |= {"chosen": sibling if chosen == "sibling" else chosen, "written": '{"third": [4]}'}
        done = (await client.post("/for-you/resolve", data=sent)).text
        assert "has one value again" in done
        assert "Beside it" not in done
        assert (await notes.get("plan")).value == left


async def test_who_saw_an_older_value_resolves_nothing():
    async with Mesh.open(engine="memory") as mesh, signed_in(mesh) as client:
        notes = mesh.memory["notes"]
        old = (await notes.put("plan", 1)).document
        new = (await notes.put("plan", 2, base=old)).document
        sibling = (await notes.put("plan", 3, base=old, strategy="defer")).sibling
        await notes.put("plan", 5, base=new)
        sent = {"space": "notes", "key": "plan", "revision": str(new.revision), "sibling": sibling}
        page = (await client.post("/for-you/resolve", data=sent | {"chosen": sibling})).text
        assert "changed meanwhile, so nothing was written" in page
        assert (await notes.get("plan")).value == 5


async def test_other_things_are_listed_with_what_resolves_them():
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.ship", attempts=1)
    async def ship() -> None:
        raise ConnectionError(SPITE)

    async with mesh, mesh.worker(), signed_in(mesh) as client:
        handle = await ship.submit()
        with pytest.raises(JobFailed):
            await handle.result()
        page = await shown(client, "dead jobs")
        assert re.search(f'name="job" value="{handle.id}".*for-you/retry.*for-you/dismiss', page)
        assert f'jobs/{handle.id}"' in page
        assert "<script>alert" not in page


async def test_a_group_of_dead_jobs_is_retried_and_dismissed_with_a_button():
    mesh = Mesh.open(engine="memory")

    @mesh.task("shop.ship", attempts=1)
    async def ship(order: int) -> None:
        raise ConnectionError(SPITE)

    async with mesh, mesh.worker(), signed_in(mesh) as client:
        for order in range(3):
            with pytest.raises(JobFailed):
                await (await ship.submit(order)).result()
        page = await shown(client, "3 jobs failed: ConnectionError")
        assert "<script>alert" not in page
        assert 'name="error" value="failed: ConnectionError"' in page
        group = {"kind": "shop.ship", "job": "", "error": "failed: ConnectionError"}
        foreign = await client.post(
            "/for-you/dismiss", data=group, headers={"Origin": "http://evil.example"}
        )
        assert foreign.status_code == 403
        done = (await client.post("/for-you/dismiss", data=group)).text
        assert "3 jobs are dismissed" in done
        assert "dead jobs" not in done
        await mesh.dismissals.undo_group(kind="shop.ship", error="failed: ConnectionError")
        done = (await client.post("/for-you/retry", data=group)).text
        assert "3 jobs of shop.ship are retried" in done
        await shown(client, "3 jobs failed: ConnectionError")
        assert len(await mesh.jobs(state="failed")) == 6

        (newest, *_) = await mesh.jobs(limit=1)
        one = {"kind": "shop.ship", "job": newest.id, "error": ""}
        assert "is dismissed" in (await client.post("/for-you/dismiss", data=one)).text
        assert "2 jobs failed: ConnectionError" in (await client.get("/for-you")).text
        assert "is retried as" in (await client.post("/for-you/retry", data=one)).text
        wrong = await client.post("/for-you/dismiss", data=one | {"job": "0" * 64})
        assert (wrong.status_code, "is not known here" in wrong.text) == (403, True)


SPITEFUL_FORM = {
    "type": "object",
    "properties": {
        SPITE: {"enum": [SPITE, 1], "title": SPITE, "description": SPITE, "default": SPITE},
        "a": {"type": "string", "default": SPITE},
        "b": {"default": [SPITE]},
    },
}


@pytest.mark.parametrize("asked", [{"schema": SPITEFUL_FORM}, {"choices": (SPITE, "b")}, {}])
async def test_whatever_is_asked_or_written_is_text_on_the_page(asked):
    mesh = a_mesh(SPITE, **asked)
    async with mesh, mesh.worker(), signed_in(mesh) as client:
        await mesh.deploy.submit()
        notes = mesh.memory["notes"]
        old = (await notes.put(SPITE, SPITE)).document
        await notes.put(SPITE, 2, base=old)
        await notes.put(SPITE, {SPITE: SPITE}, base=old, strategy="defer")
        page = await shown(client, "/for-you/answer")
        sent = {"job": job_in(page), "answer.0": SPITE, "answer.1": SPITE, "answer.2": SPITE}
        wrong = (await client.post("/for-you/answer", data=sent)).text
        other = {"space": SPITE, "key": SPITE, "revision": "1", "chosen": SPITE, "sibling": SPITE}
        resolved = (await client.post("/for-you/resolve", data=other)).text
        question = (await client.get(f"/jobs/{job_in(page)}")).text
        for one in (page, wrong, resolved, question):
            assert "<script>alert" not in one
            assert "<img" not in one


async def test_a_question_that_is_cancelled_waits_for_nobody():
    async with Mesh.open(engine="memory") as mesh, signed_in(mesh) as client:
        mine = await mesh.questions.ask("mine?", kind="approve.own", choices=("yes",))
        await shown(client, "mine?")
        await mine.cancel("")
        await shown(client, "Nothing waits for you")


@asynccontextmanager
async def another(mesh):
    """A member with a key of its own."""
    async with mesh.connection.memory.connection("member") as opened:
        member = Mesh.open(engine="memory")
        member.connection._opened = opened
        yield member


async def test_questions_of_one_member_hide_nobody_elses_and_any_can_be_answered():
    async with (
        Mesh.open(engine="memory") as mesh,
        another(mesh) as spammer,
        another(mesh) as friend,
        signed_in(mesh) as client,
    ):
        spam = [await spammer.questions.ask("?", kind="spam.q") for _ in range(52)]
        mine = await friend.questions.ask("pay?", kind="shop.approve", choices=("yes", "no"))
        page = await shown(client, "pay?")
        assert 'For you<sup>50<span class="vh"> waiting' in page
        assert "There is more than is shown here" in page
        unseen = next(one.id for one in spam if one.id not in page)
        for kind, job, answer in (("shop.approve", mine.id, "yes"), ("spam.q", unseen, "no")):
            sent = {"kind": kind, "job": job, "answer": answer}
            done = await client.post("/for-you/answer", data=sent)
            assert "answered, signed with" in done.text
        assert await mine.result() == "yes"


async def test_a_question_is_answered_by_its_kind_and_id_and_no_other_with_that_id():
    async with (
        Mesh.open(engine="memory") as mesh,
        another(mesh) as spammer,
        signed_in(mesh) as client,
    ):
        mine = await spammer.questions.ask("pay?", kind="shop.approve", choices=("yes", "no"))
        view = await mesh.job("shop.approve", mine.id).lane()
        body = replace(view.history[0].opened.op.body, kind="spam.q")
        await submission.submit(spammer.connection.session, body)
        page = await shown(client, 'value="spam.q"')
        assert page.count(f'name="job" value="{mine.id}"') == 2
        wrong = {"kind": "spam.r", "job": mine.id, "answer": "yes"}
        for sent in (wrong, {"job": mine.id, "answer": "yes"}, {"job": "%", "answer": "yes"}):
            refused = await client.post("/for-you/answer", data=sent)
            assert "not open any more" in refused.text
        sent = {"kind": "shop.approve", "job": mine.id, "answer": "yes"}
        assert "answered" in (await client.post("/for-you/answer", data=sent)).text
        assert await mine.result() == "yes"
        assert not (await mesh.job("spam.q", mine.id).state()).is_terminal


async def test_who_has_answered_a_question_to_several_people_is_found_behind_any_others():
    async with (
        Mesh.open(engine="memory") as mesh,
        another(mesh) as asker,
        another(mesh) as person,
        signed_in(mesh) as client,
    ):
        asked = {"kind": "shop.approve", "choices": ("yes", "no")}
        mine = await asker.questions.ask("both?", **asked, replicas=2, quorum=2)
        await shown(client, "people have to agree")
        await person.questions.answer("shop.approve", mine.id, "yes")
        for number in range(210):
            await asker.submit("shop.approve", number)
        assert "has answered</span>" in await shown(client, "people have to agree")
