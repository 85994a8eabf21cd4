"""The program that the pipeline builds, tests and releases."""

import sys

print(f"Hello, {sys.argv[1]}!")
