"""A probe finds a service that does nothing any more, and takes no slow machine for one."""

import asyncio
from types import SimpleNamespace

import pytest

from antiphon.errors import Rejected, Unavailable
from chaos.extremes import ordinary_work
from chaos.extremes.ordinary_work import LOOKS, Idle, keep_up, until_done

pytestmark = pytest.mark.virtual_time
HOUR_S = 3_600.0


class Mesh:
    """Two full nodes that need so long for each record, and a log that grows with every look."""

    def __init__(self, record_s: float = 0.0) -> None:
        self.record_s = record_s
        self.seq = 0
        self.is_away = False
        self.nodes = [SimpleNamespace(applied=0, session=self) for _ in range(2)]
        self.host = SimpleNamespace(node=self.nodes[0])
        self.log = self

    async def last(self):
        if self.is_away:
            raise Unavailable("later")
        self.seq += 1
        self._applying = asyncio.ensure_future(self._apply(self.seq))
        return SimpleNamespace(seq=self.seq)

    async def _apply(self, seq: int) -> None:
        await asyncio.sleep(self.record_s)
        for node in self.nodes:
            node.applied = max(node.applied, seq)

    def ended(self):
        return []

    async def look(self) -> None:
        await keep_up(self)


async def test_work_that_takes_hours_is_waited_for_while_the_nodes_are_behind():
    slow = Mesh(record_s=25.0)
    assert await until_done(lambda: asyncio.sleep(HOUR_S, "done"), slow.look) == "done"


async def test_a_service_that_does_nothing_is_found_by_nodes_that_keep_up():
    loop = asyncio.get_running_loop()
    with pytest.raises(Idle, match=f"not done after {LOOKS} looks"):
        await until_done(lambda: asyncio.sleep(HOUR_S), Mesh().look)
    assert loop.time() < HOUR_S


async def test_a_node_that_stands_still_is_found():
    with pytest.raises(Idle, match="stands still at record 0"):
        await until_done(lambda: asyncio.sleep(HOUR_S), Mesh(record_s=HOUR_S).look)


async def test_an_engine_that_does_not_answer_for_a_while_is_no_fault_of_a_service():
    mesh = Mesh()
    mesh.is_away = True
    assert await until_done(lambda: asyncio.sleep(20, "done"), mesh.look) == "done"


async def test_what_took_too_long_is_tried_again_and_what_was_refused_is_not():
    tried = []

    async def late():
        tried.append(1)
        if len(tried) < 5:
            raise Unavailable("no answer within 3 s")
        return "done"

    assert await until_done(late, Mesh().look) == "done"

    async def refused():
        tried.append(2)
        raise Rejected("no")

    with pytest.raises(Rejected):
        await until_done(refused, Mesh().look)
    assert tried == [1] * 5 + [2]


async def test_a_probe_that_never_ends_is_cancelled(monkeypatch):
    monkeypatch.setattr(ordinary_work, "LOOKS", 3)
    ended = asyncio.Event()

    async def forever():
        try:
            await asyncio.sleep(HOUR_S)
        finally:
            ended.set()

    with pytest.raises(Idle):
        await until_done(forever, Mesh().look)
    assert ended.is_set()
