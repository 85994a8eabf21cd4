"""Three servers, three copies: reads that must not lag, and a leader that dies."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import msgspec
import pytest

from antiphon.engines.nats import LocalServer, NatsEngine
from antiphon.engines.nats.log import pull_queue
from antiphon.engines.nats.log.streams import Streams, log_name
from antiphon.errors import AntiphonError, IdTaken, LostRace, Unavailable
from antiphon.testing.engine_suite.harness import collect, new_mesh, persist, seqs, soon, whole_lane
from bench.meshes.local_cluster import free_ports
from tests.engines.nats.harness import stalled, until
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.nats, pytest.mark.slow]


class Member(LocalServer):
    """A server that knows its peers."""

    def __init__(self, number, ports, secrets):
        super().__init__()
        self._number, self._routes = number, ports
        (self.directory / "credentials.json").write_text(secrets)

    def _config(self):
        routes = ", ".join(f'"nats-route://127.0.0.1:{port}"' for port in self._routes)
        here = self._routes[self._number]
        return (
            super()._config()
            + f'cluster {{ name: three, listen: "127.0.0.1:{here}", routes: [{routes}] }}\n'
        )


@asynccontextmanager
async def three_servers():
    secrets = '{"mesh": "m-secret", "system": "s-secret"}'
    ports = free_ports(3)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Member(n, ports, secrets)) for n in range(3)]


async def join(servers, mesh, **extra):
    first = servers[0]
    settings = {"login": first.login, "replicas": 3, **extra}
    return await NatsEngine.connect(",".join(one.url for one in servers), mesh, **settings)


async def bootstrap(servers, mesh):
    async def attempt():
        return await join(servers, mesh, create=True, system=servers[0].system_login)

    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                engine = await attempt()
                break
            except AntiphonError:  # the cluster elects its first leader
                await asyncio.sleep(0.5)

    async def no_write():
        with suppress(LostRace):
            await engine.log.append(f"ap.{mesh}.seal", b"", message_id="no", expected_last=9)

    await persist(no_write, PATIENCE_S)  # the stream elects its own
    return engine


async def test_three_copies_behave_as_one_log_and_survive_their_leader():
    mesh = new_mesh()
    async with three_servers() as servers:
        engine = await bootstrap(servers, mesh)
        info = await engine.info()
        assert (info.durability, info.replicas) == ("always", 3)

        async def append(n, *, after=0, data=b"x"):
            return await engine.log.append(
                f"ap.{mesh}.jobs.1.k.{n}", data, message_id=f"{n}", expected_last=after
            )

        given = await asyncio.gather(*(append(n) for n in range(200)))
        assert sorted(given) == list(range(1, 201))
        assert await append(7) == given[7]
        with pytest.raises(IdTaken):
            await append(7, data=b"y")
        with pytest.raises(LostRace):
            await engine.log.append(f"ap.{mesh}.jobs.1.k.7", b"y", message_id="y", expected_last=0)
        for n in range(30):
            seq = await engine.log.append(
                f"ap.{mesh}.ctl.c{n}", b"", message_id=f"c{n}", expected_last=0
            )
            found = await engine.log.confirm(f"ap.{mesh}.ctl.>", after=seq - 1, upto=seq)
            assert seqs(found) == [seq]

        async with (
            engine.log.follow(0) as everything,
            engine.log.follow(0, subject=f"ap.{mesh}.ctl.>") as control,
            engine.log.work(f"ap.{mesh}.jobs.1.k.*", name="q") as queue,
        ):
            assert seqs(await collect(everything, 230)) == list(range(1, 231))
            assert seqs(await collect(control, 30)) == list(range(201, 231))
            queue.grant(500)
            for _ in range(200):
                (await soon(queue.next())).ack()

            described = await Streams(engine._requester).info(log_name(mesh))
            leader = described["cluster"]["leader"]
            named = {_name(one): one for one in servers}
            victim = named[leader]
            victim.kill()
            await until(lambda: engine.connected)

            async def write(n):
                return await persist(lambda: append(n), 60)

            for n in range(300, 320):
                await write(n)
            await persist(
                lambda: engine.log.append(
                    f"ap.{mesh}.ctl.last", b"", message_id="last", expected_last=0
                ),
                60,
            )
            assert seqs(await collect(everything, 21)) == list(range(231, 252))
            assert seqs(await collect(control, 1)) == [251]
            handed = {(await soon(queue.next(), 60)).record.seq for _ in range(20)}
            assert handed == set(range(231, 251))
            await victim.start()
        await engine.close()


@pytest.mark.parametrize("how", ["it dies", "it hangs"])
async def test_who_waits_at_a_server_that_is_lost_asks_another_at_once(how, monkeypatch):
    monkeypatch.setattr(pull_queue, "EXPIRES_S", 600.0)
    mesh = new_mesh()
    async with three_servers() as servers:
        first = await bootstrap(servers, mesh)
        async with first.log.work(f"ap.{mesh}.jobs.1.k.*", name="q"):
            pass
        log = log_name(mesh)
        info = f"$JS.API.CONSUMER.INFO.{log}.q"
        answer = await Streams(first._requester).call(info)
        leader = msgspec.json.decode(answer)["cluster"]["leader"]
        await first.close()
        others = [one for one in servers if _name(one) != leader]
        engine = await join(others, mesh)
        async with engine.log.work(f"ap.{mesh}.jobs.1.k.*", name="q") as queue:
            queue.grant(1)
            await until(lambda: queue.is_dry)
            streams = Streams(engine._requester)
            async with asyncio.timeout(60):
                while not msgspec.json.decode(await streams.call(info))["num_waiting"]:
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1)  # the other servers know that it waits; nobody says so
            victim = next(one for one in servers if one not in others)

            async def call():
                await engine.log.append(
                    f"ap.{mesh}.jobs.1.k.1", b"", message_id="1", expected_last=0
                )

            async with AsyncExitStack() as stack:
                if how == "it dies":
                    victim.kill()
                else:
                    await stack.enter_async_context(stalled(victim))
                await persist(call, 60)
                assert (await soon(queue.next(), 60)).record.subject.endswith(".1")
        await engine.close()


def _name(server):
    text = (server.directory / "server.conf").read_text()
    return text.split("server_name: ")[1].splitlines()[0]


async def test_a_stream_that_lost_its_majority_answers_with_errors_and_comes_back():
    mesh = new_mesh()
    async with three_servers() as servers:
        engine = await bootstrap(servers, mesh)
        await engine.log.append(f"ap.{mesh}.seal", b"1", message_id="1", expected_last=0)
        await engine.close()
        survivor = servers[2]
        engine = await join([survivor], mesh, create=False)
        servers[0].kill()
        servers[1].kill()
        with pytest.raises(Exception) as caught:
            await engine.log.append(
                f"ap.{mesh}.seal", b"2", message_id="2", expected_last=1, timeout_s=3
            )
        assert type(caught.value).__module__ == "antiphon.errors"
        await servers[0].start()
        await servers[1].start()
        seq = await persist(
            lambda: engine.log.append(
                f"ap.{mesh}.seal", b"2", message_id="2", expected_last=1, timeout_s=5
            ),
            60,
        )
        assert seq == 2

        async def both():
            lane = await whole_lane(engine.log, [f"ap.{mesh}.seal"])
            if len(lane) < 2:
                raise Unavailable("the copy that answered lags behind")
            return lane

        assert [record.payload for record in await persist(both, 30)] == [b"1", b"2"]
        await engine.close()
