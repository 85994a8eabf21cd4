"""What is tested."""


def with_tax(cents: int, percent: int) -> int:
    """A price with tax, rounded down."""
    return cents * (100 + percent) // 100
