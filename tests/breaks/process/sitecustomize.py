"""Python runs this when it starts, since `scripts/conformance --break` puts it on the path.

So a feature is missing in the tests' own process and in every one that they start.
"""

import os

from tests.breaks.replacement import Break, becomes, install
from tests.breaks.table import BREAKS

IMPATIENT = Break("tests.patience:PATIENCE_S", becomes(60.0), "tests wait for minutes")
"""Most tests that notice something wait in vain for something else."""

row, _, place = os.environ["TAKEN_OUT"].partition("/")
install([IMPATIENT, BREAKS[row][int(place)]] if row else [IMPATIENT])
