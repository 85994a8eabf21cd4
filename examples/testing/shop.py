"""A shop: the program under test."""

from antiphon import GiveUp, Mesh

mesh = Mesh.open()
shipped: list[int] = []


@mesh.task("shop.ship")
def ship(order: int) -> str:
    if order < 0:
        raise GiveUp(f"there is no order {order}")
    shipped.append(order)
    return f"parcel {order}"


@mesh.task("shop.remind")
async def remind(customer: str) -> None:
    print(f"Dear {customer}, please pay.")


async def order(number: int, customer: str) -> str:
    """Ship now, and remind the customer in an hour."""
    parcel = await ship.submit(number)
    await remind.options(delay="1h").submit(customer)
    return await parcel.result()
