"""Python runs this when it starts, since `python -m tests.mutate` puts it on the path.

So a mutant is in the tests' own process and in every one that they start.
"""

from tests.mutate.overlay import install_from_environment

install_from_environment()
