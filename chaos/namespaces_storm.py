"""`chaos partition --how namespaces`: packets get lost, late and out of order between real stacks.

Every site, every server and the ground (caller, full node, reckoning) is a network namespace of its
own (`namespaces.py`); one switch joins them (`namespaces_switch.py`). TCP does what it does: it
repeats, backs off and believes in lines that are long gone. Two of three sites may be in trouble at
once, and one of three servers, which are cut off for longer: an election takes 4 to 9 s.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from antiphon.runtime.home import Home
from chaos.namespaces import Impossible, Place, enter, prepare
from chaos.namespaces_servers import PlacedServer, placed_servers
from chaos.namespaces_switch import Pair, Switch, between, into, out_of
from chaos.outsider_line import Line
from chaos.partition import LASTS_S, PAUSE_S, SITES, Outcome, Weather, ride_out, tell
from chaos.servers import found
from chaos.worker_process import Orders
from chaos.workers import RULES, say

SITE_FAULTS: Final = ("down", "cut", "mute", "deaf", "late", "lossy")
SERVER_FAULTS: Final = ("server_alone", "server_split")
"""Cut off from everybody; cut off from its peers only, so that workers still talk to it."""
SERVER_LASTS_S: Final = (1.0, 12.0)
SERVER_PAUSE_S: Final = (2.0, 6.0)
"""A cluster that is never whole has no leader for anything, and nothing else can go wrong."""
LATE_S: Final = (0.02, 0.4)
LOSS: Final = (0.05, 0.3)
AIMED: Final = 0.6
"""Of all faults of servers, the share that is aimed at the leader of the log."""
IMPOSSIBLE: Final = 2
INTERRUPTED: Final = 130


class Country:
    """All places, and the faults that befall them."""

    def __init__(self, replicas: int) -> None:
        """The ground is the first; nothing is joined yet."""
        with ExitStack() as stack:
            made = [stack.enter_context(Place(number)) for number in range(1, 2 + replicas + SITES)]
            self.close = stack.pop_all().close
        self.all = made
        self.ground, *rest = made
        self.servers, self.sites = rest[:replicas], rest[replicas:]

    @contextmanager
    def fault(
        self, name: str, place: Place, switch: Switch, chance: random.Random
    ) -> Iterator[None]:
        """Something is wrong with a place for as long as the context lasts."""
        others = [other for other in self.all if other is not place]
        peers = [other for other in self.servers if other is not place]
        cut: dict[str, list[Pair]] = {
            "cut": between(place, others),
            "mute": out_of(place, others),
            "deaf": into(place, others),
            "server_alone": between(place, others),
            "server_split": between(place, peers),
        }
        if name == "down":
            place.set_up(False)
            try:
                yield
            finally:
                place.set_up(True)
        elif name == "late":
            with switch.trouble(between(place, others), late_s=_part_of(LATE_S, chance)):
                yield
        elif name == "lossy":
            with switch.trouble(between(place, others), loss=chance.uniform(*LOSS)):
                yield
        else:
            with switch.trouble(cut[name], loss=1.0):
                yield


def _part_of(limits: tuple[float, float], chance: random.Random) -> tuple[float, float]:
    """A stretch within the limits: so much is everybody late, so much does it vary."""
    one, other = chance.uniform(*limits), chance.uniform(*limits)
    return min(one, other), max(one, other)


class Weathering:
    """One fault after the other, on sites and on servers, until there were enough."""

    def __init__(self, country: Country, switch: Switch, weather: Weather) -> None:
        self._country, self.switch, self._weather = country, switch, weather
        self._chance = random.Random(weather.seed)
        self.faults: Counter[str] = Counter()
        self.leaders = 0
        """Faults that befell the server which led the log."""

    async def blow(self, servers: Sequence[PlacedServer], asking: Home) -> None:
        """Never on all sites at once, and never on two servers."""
        is_well = asyncio.Semaphore(SITES - 1)
        async with asyncio.TaskGroup() as tasks:
            for site in self._country.sites:
                tasks.create_task(self._trouble_site(site, is_well))
            if len(servers) > 1:
                tasks.create_task(self._trouble_servers(servers, asking))

    @property
    def _is_enough(self) -> bool:
        return self.faults.total() >= self._weather.faults

    async def _trouble_site(self, site: Place, is_well: asyncio.Semaphore) -> None:
        while not self._is_enough:
            async with is_well:
                await self._befall(self._chance.choice(SITE_FAULTS), site, LASTS_S)
            await asyncio.sleep(self._chance.uniform(*PAUSE_S))

    async def _trouble_servers(self, servers: Sequence[PlacedServer], asking: Home) -> None:
        while not self._is_enough:
            leader = await leading(servers, asking)
            server = self._chance.choice(list(servers))
            if leader is not None and self._chance.random() < AIMED:
                server = leader
            self.leaders += server is leader
            await self._befall(self._chance.choice(SERVER_FAULTS), server.place, SERVER_LASTS_S)
            await asyncio.sleep(self._chance.uniform(*SERVER_PAUSE_S))

    async def _befall(self, name: str, place: Place, lasts_s: tuple[float, float]) -> None:
        self.faults[name] += 1
        with self._country.fault(name, place, self.switch, self._chance):
            await asyncio.sleep(self._chance.uniform(*lasts_s))


async def leading(servers: Sequence[PlacedServer], asking: Home) -> PlacedServer | None:
    """The server that leads the log's stream; None if nobody can say."""
    with suppress(Exception):  # in such weather nobody may answer
        line = await Line.open(asking)
        try:
            answers = await line.ask(f"$JS.API.STREAM.INFO.{line.stream}", within_s=2.0)
            name = json.loads(answers[0].data)["cluster"]["leader"]
        finally:
            await line.close()
        return next((one for one in servers if one.name == name), None)
    return None


async def storm_over(place: Path, country: Country, weather: Weather) -> tuple[Outcome, Weathering]:
    """The whole storm, and what is left behind it."""
    home, logs = Home(place / "home"), place / "logs"
    logs.mkdir()
    async with AsyncExitStack() as stack:
        switch = await stack.enter_async_context(
            Switch(country.all, random.Random(weather.seed + 1))
        )
        servers, access, ca = await stack.enter_async_context(
            placed_servers(place, country.servers)
        )
        mesh = await found(home, servers, RULES, access=access, ca=ca)
        asking = Home(place / "asking")
        asking.write(msgspec.structs.replace(mesh, engine=servers[0].url), access)
        orders = []
        for number, site in enumerate(country.sites):
            at = Home(place / f"site-{number}")
            at.write(mesh, access)
            orders.append(
                Orders(home=at.path, witness=place / "witness", log=logs, network=site.path)
            )
        weathering = Weathering(country, switch, weather)
        outcome = await ride_out(
            home, orders, weather, weathering.faults, lambda: weathering.blow(servers, asking)
        )
    return outcome, weathering


async def run(country: Country, weather: Weather) -> int:
    begun = time.monotonic()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with tempfile.TemporaryDirectory(prefix="antiphon-chaos-") as place:
        outcome, weathering = await storm_over(Path(place), country, weather)
    names = SITE_FAULTS + (SERVER_FAULTS if weather.replicas > 1 else ())
    return tell(
        outcome,
        weather,
        {name: weathering.faults[name] for name in names},
        begun,
        leaders_cut_off=weathering.leaders,
        packets=weathering.switch.carried,
        packets_lost=weathering.switch.lost,
        replicas=weather.replicas,
    )


def main(weather: Weather) -> int:
    """In a process that does nothing else: it moves to the ground and stays there."""
    try:
        prepare()
        country = Country(weather.replicas)
    except Impossible as problem:
        print(f"NOTHING WAS TRIED: {problem}", file=sys.stderr, flush=True)
        print(json.dumps({"skipped": str(problem)}))
        return IMPOSSIBLE
    try:
        enter(country.ground.path)
        return asyncio.run(run(country, weather))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say("interrupted: everything was cleared away")
        return INTERRUPTED
    finally:
        country.close()
