"""The fault proxy does what it says: else a partition run shows nothing."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest

from chaos.network.fault_proxy import FaultProxy
from tests.patience import PATIENCE_S


@asynccontextmanager
async def echo_behind_a_proxy():
    async def echo(reader, writer):
        with suppress(OSError):
            while line := await reader.readline():
                writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy
        await proxy.set_mode("cut")
        await asyncio.sleep(0.05)  # both ends hear of it


@asynccontextmanager
async def a_line_to(proxy):
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def is_dead(line):
    try:
        return await say(line) == b""
    except OSError:
        return True


async def say(line, text=b"x\n", within_s=PATIENCE_S):
    line[1].write(text)
    return await asyncio.wait_for(line[0].readline(), within_s)


async def test_it_passes_on_what_it_is_given():
    async with echo_behind_a_proxy() as proxy, a_line_to(proxy) as line:
        assert await say(line, b"hello\n") == b"hello\n"
        assert proxy.open_connections == 1


async def test_late_is_late_by_as_much_each_way():
    async with echo_behind_a_proxy() as proxy, a_line_to(proxy) as line:
        await proxy.set_mode("late", late_s=0.1)
        begun = asyncio.get_running_loop().time()
        assert await say(line) == b"x\n"
        assert asyncio.get_running_loop().time() - begun >= 0.2


async def test_frozen_passes_nothing_closes_nothing_and_loses_nothing():
    async with echo_behind_a_proxy() as proxy, a_line_to(proxy) as line:
        await say(line)
        await proxy.set_mode("frozen")
        with pytest.raises(TimeoutError):
            await say(line, b"kept\n", within_s=0.2)
        assert not line[0].at_eof()
        await proxy.set_mode("normal")
        assert await asyncio.wait_for(line[0].readline(), PATIENCE_S) == b"kept\n"


async def test_cut_closes_what_is_open_and_refuses_what_comes_until_it_is_normal_again():
    async with echo_behind_a_proxy() as proxy:
        async with a_line_to(proxy) as line:
            await say(line)
            await proxy.set_mode("cut")
            assert proxy.open_connections == 0
            assert await is_dead(line)
        async with a_line_to(proxy) as line:
            assert await is_dead(line)
        await proxy.set_mode("normal")
        async with a_line_to(proxy) as line:
            assert await say(line) == b"x\n"
