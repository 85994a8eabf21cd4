"""Tests of the shop. Run them with `pytest`, without a server."""

import asyncio

import pytest
import shop

from antiphon import JobFailed
from antiphon.testing.tested_mesh import TestedMesh


@pytest.fixture(autouse=True)
def in_memory(mesh: TestedMesh) -> None:
    mesh.use(shop.mesh)
    shop.shipped.clear()


def test_an_order_is_shipped_at_once_and_the_customer_reminded_an_hour_later(
    mesh: TestedMesh,
) -> None:
    assert mesh.run(shop.order(7, "Ada")) == "parcel 7"
    mesh.assert_called(shop.ship, 7)
    mesh.assert_not_called(shop.remind)
    mesh.run(asyncio.sleep(3700))  # takes no time
    mesh.assert_called(shop.remind, "Ada")


def test_an_order_that_does_not_exist_fails(mesh: TestedMesh) -> None:
    with pytest.raises(JobFailed) as failed:
        mesh.call(shop.ship, -1)
    assert failed.value.error_type == "GiveUp"


def test_shipping_may_happen_twice_and_its_result_counts_once(mesh: TestedMesh) -> None:
    mesh.kill_worker()
    assert mesh.call(shop.ship, 7) == "parcel 7"
    assert shop.shipped == [7, 7]  # so make it safe to repeat
    assert [call.attempt for call in mesh.calls(shop.ship)] == [1, 2]


def test_a_lost_answer_of_the_engine_does_no_harm(mesh: TestedMesh) -> None:
    mesh.lose_next_write()
    assert mesh.call(shop.ship, 7) == "parcel 7"
    assert shop.shipped == [7]
