"""Its tests."""

import unittest

from prices import with_tax


class Prices(unittest.TestCase):
    def test_tax_is_added(self) -> None:
        assert with_tax(1000, 19) == 1190


if __name__ == "__main__":
    unittest.main()
