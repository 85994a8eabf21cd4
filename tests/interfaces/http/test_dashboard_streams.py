"""Pages that stay current: what a stream sends, how often, to whom, and how it ends."""

import asyncio
from itertools import count, pairwise

import pytest

from antiphon.interfaces.http.pages import live
from antiphon.interfaces.http.pages.live import Frame, Streams


class Busy:
    """A mesh on which something is always written."""

    async def news(self, applied):
        return applied + 1


class Quiet:
    """One on which nothing is."""

    async def news(self, _):
        await asyncio.Event().wait()


def always():
    return True


async def frames(streams, make, is_allowed=always):
    """What arrives until the stream ends: virtual seconds and bytes."""
    loop = asyncio.get_running_loop()
    answer = streams.answer(make, is_allowed)
    return [(loop.time(), one) async for one in answer.pieces]


def numbered():
    """A page that is another one each time."""
    numbers = count(1)

    async def make():
        return Frame(f"<p>{next(numbers)}</p>")

    return make


@pytest.mark.virtual_time
async def test_however_much_is_written_a_page_is_sent_once_a_second(monkeypatch):
    monkeypatch.setattr(live, "STREAM_S", 10.0)
    sent = [at_s for at_s, one in await frames(Streams(Busy()), numbered()) if b"data" in one]
    assert len(sent) == 10
    assert all(later - at_s >= 1 for at_s, later in pairwise(sent))


@pytest.mark.virtual_time
async def test_what_did_not_change_is_not_sent_again(monkeypatch):
    monkeypatch.setattr(live, "STREAM_S", 60.0)

    async def make():
        return Frame("<p>the same</p>\n<p>two lines</p>")

    sent = [one for _, one in await frames(Streams(Quiet()), make)]
    assert [one for one in sent if b"same" in one] == [
        b"data: <p>the same</p>\ndata: <p>two lines</p>\n\n"
    ]
    assert sent.count(b":\n\n") == 3, "a sign of life every quarter of a minute"


@pytest.mark.virtual_time
async def test_a_stream_ends_with_what_it_is_about():
    async def make():
        return Frame("<p>done</p>", is_last=True)

    sent = [one for _, one in await frames(Streams(Busy()), make)]
    assert sent[-1] == live.END


@pytest.mark.virtual_time
async def test_a_stream_ends_with_its_session():
    left = iter([True, True, False])
    sent = await frames(Streams(Busy()), numbered(), lambda: next(left))
    assert sum(b"data" in one for _, one in sent) == 2


@pytest.mark.virtual_time
async def test_the_end_of_the_server_ends_every_stream_at_once():
    streams = Streams(Quiet())
    both = asyncio.gather(frames(streams, numbered()), frames(streams, numbered()))
    await asyncio.sleep(3)
    streams.close()
    await asyncio.sleep(0.1)
    assert both.done()


async def test_a_stream_that_is_left_is_not_waited_for():
    streams = Streams(Quiet())
    pieces = streams.answer(numbered(), always).pieces
    await anext(pieces)
    assert streams._open
    await pieces.aclose()
    assert not streams._open
