"""Network namespaces and the switch between them lose, delay and cut as they are told."""

import asyncio
import random
import socket
import time
from contextlib import ExitStack, contextmanager

import pytest

from chaos.network.namespaces import (
    NamespacesUnavailable,
    NetworkNamespace,
    check_creation,
    check_programs,
)
from chaos.network.packet_switch import PacketSwitch, between, into, out_of
from tests.chaos.network.namespace_skip import leave_out
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow]

PORT = 4001
ARRIVES_S = PATIENCE_S
STAYS_AWAY_S = 0.15


@contextmanager
def namespaces(count):
    try:
        check_programs()
        check_creation()
    except NamespacesUnavailable as problem:
        leave_out(str(problem))
    with ExitStack() as stack:
        yield [stack.enter_context(NetworkNamespace(number)) for number in range(1, count + 1)]


class Socket:
    """A socket that was opened in a namespace."""

    def __init__(self, namespace):
        self.namespace = namespace
        self.socket = namespace.call(self._open)

    def _open(self):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind((self.namespace.address, PORT))
        one.setblocking(False)
        return one

    def send(self, to, text=b"hello"):
        self.socket.sendto(text, (to.namespace.address, PORT))

    async def receive(self, within_s=ARRIVES_S):
        try:
            async with asyncio.timeout(within_s):
                return await asyncio.get_running_loop().sock_recv(self.socket, 100)
        except TimeoutError:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


async def test_namespaces_reach_each_other_through_the_switch_and_not_without_it():
    with namespaces(2) as (here, there), Socket(here) as one, Socket(there) as other:
        one.send(other)
        assert await other.receive(STAYS_AWAY_S) is None
        async with PacketSwitch([here, there], random.Random(1)):
            assert await other.receive() == b"hello"  # waited in the tunnel
            other.send(one, b"back")
            assert await one.receive() == b"back"


def test_a_namespace_reaches_nothing_of_the_machine_that_it_is_on():
    with namespaces(1) as (here,), socket.create_server(("127.0.0.1", 0)) as outside:

        def connect():
            with socket.create_connection(outside.getsockname(), timeout=1):
                return "came through"

        with pytest.raises(OSError, match="unreachable"):
            here.call(connect)


async def test_a_route_is_cut_one_way_or_both_and_works_again_afterwards():
    with namespaces(3) as all_namespaces:
        async with PacketSwitch(all_namespaces, random.Random(1)) as switch:
            with ExitStack() as stack:
                one, other, third = [
                    stack.enter_context(Socket(namespace)) for namespace in all_namespaces
                ]
                for pairs, forth, back in (
                    (out_of(one.namespace, [other.namespace]), None, b"hello"),
                    (into(one.namespace, [other.namespace]), b"hello", None),
                    (between(one.namespace, [other.namespace]), None, None),
                    ([], b"hello", b"hello"),
                ):
                    with switch.impaired(pairs, loss=1.0):
                        one.send(other)
                        other.send(one)
                        wait_s = ARRIVES_S if forth and back else STAYS_AWAY_S
                        assert await other.receive(wait_s) == forth
                        assert await one.receive(wait_s) == back
                        third.send(other)  # nobody else is concerned
                        assert await other.receive() == b"hello"


async def test_packets_are_late_or_lost_as_told():
    with namespaces(2) as (here, there), Socket(here) as one, Socket(there) as other:
        async with PacketSwitch([here, there], random.Random(1)) as switch:
            with switch.impaired(between(here, [there]), late_s=(0.2, 0.3)):
                begun = time.monotonic()
                one.send(other)
                assert await other.receive() == b"hello"
                assert time.monotonic() - begun > 0.19
            with switch.impaired(between(here, [there]), loss=0.3):
                for _ in range(200):
                    one.send(other)
                    await asyncio.sleep(0)
                while switch.lost < 30:  # of sixty, as soon as it comes to them
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
            assert switch.lost <= 90


async def test_an_interface_that_is_down_is_an_error_inside_and_works_when_it_is_up_again():
    with namespaces(2) as (here, there), Socket(here) as one, Socket(there) as other:
        async with PacketSwitch([here, there], random.Random(1)):
            here.set_up(False)
            with pytest.raises(OSError, match="unreachable"):
                one.send(other)
            other.send(one)
            assert await one.receive(STAYS_AWAY_S) is None
            here.set_up(True)
            one.send(other)
            assert await other.receive() == b"hello"
