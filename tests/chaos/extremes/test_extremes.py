"""`chaos extremes`: what is drawn is what schemas admit; and the whole of it, small."""

import random

import msgspec
import pytest

from antiphon.core.messages.envelope import MessageBody
from antiphon.core.protocol import PROTOCOL
from antiphon.core.record import codec
from antiphon.runtime.messages.message_requests import MessageRequest
from chaos.extremes.command import FAMILIES, holds, trial
from chaos.extremes.known import Known
from chaos.extremes.messages import BUS
from chaos.extremes.ops import Drawer, body_of
from chaos.extremes.values import Extremes

OPS = PROTOCOL.ops


@pytest.mark.parametrize("name", OPS)
def test_what_is_drawn_for_an_op_can_be_decoded(name):
    extremes, body = Extremes(random.Random(name)), body_of(OPS[name])
    for _ in range(20):
        drawn = extremes.value(body, "")
        assert msgspec.json.decode(codec.encode(drawn), type=body.cls) == drawn


@pytest.mark.parametrize(
    "body", [MessageRequest, MessageBody, *dict.fromkeys(one.body for one in BUS)]
)
def test_what_is_drawn_for_a_message_can_be_decoded(body):
    extremes = Extremes(random.Random(1))
    for _ in range(20):
        assert msgspec.json.decode(msgspec.json.encode(extremes.draw(body)), type=body)


def test_the_ends_of_a_schema_are_drawn():
    extremes = Extremes(random.Random(1))
    drawn = [extremes.draw(MessageRequest) for _ in range(300)]
    assert {0, 2**53 - 1} <= {one.limit for one in drawn}
    assert {0, 128} <= {len(one.thread) for one in drawn}
    assert max(len(one.named) for one in drawn) == 64
    assert any(len(one.named) > len(set(one.named)) for one in drawn), "the same again and again"


def test_questions_have_any_json_in_their_schemas():
    drawer = Drawer(Extremes(random.Random(1)), Known(random.Random(1), (), None), FAMILIES)
    schemas = [msgspec.json.decode(drawer.question().schema) for _ in range(300)]
    types = [type(one["type"]) for one in schemas if "type" in one]
    assert {list, dict, int, str, bool, type(None)} <= set(types)
    assert any("items" in one.get("items", {}) for one in schemas if type(one.get("items")) is dict)


def test_a_seed_draws_the_same_again():
    one, other = (Extremes(random.Random(7)) for _ in range(2))
    body = body_of(OPS["job.schedule"]).cls
    assert [one.draw(body) for _ in range(9)] == [other.draw(body) for _ in range(9)]


@pytest.mark.nats
@pytest.mark.slow
async def test_everybody_agrees_on_extremes_and_every_service_works_on():
    said = await trial(120, seed=1, families=FAMILIES, long_lanes=1, length=20)
    assert holds(said), said
    assert said["records"] >= 120
    assert said["entries"] > 20
    assert said["messages"] > 20


UNHARMED = {"disagreements": 0, "services_ended": 0}


@pytest.mark.parametrize("name", UNHARMED)
def test_one_disagreement_or_one_service_that_ended_is_too_much(name):
    assert holds(UNHARMED)
    assert not holds({**UNHARMED, name: 1})
