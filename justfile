# The verbs of the working day. Each is one line over scripts/, so just itself is optional.

# list the verbs
default:
    @just --list

# make or refresh .venv
setup:
    scripts/setup

# everything CI runs; name steps to run only some
check *steps:
    scripts/check {{ steps }}

# what needs only Python: lint, types, layers and the pure tests; under a minute
fast:
    scripts/check fast

# the tests; arguments go to pytest
test *arguments:
    scripts/check tests -- {{ arguments }}

# the tests at full size, and those that are too long for CI
soak *arguments:
    scripts/check soak -- {{ arguments }}

# layout and the mends that are safe
fmt:
    .venv/bin/ruff format .
    .venv/bin/ruff check --fix .

# lint and layout, changing nothing
lint:
    scripts/check lint format

# mypy
types:
    scripts/check types

# layers, purity, cycles
imports:
    scripts/check imports

# write the requirements table again from the tests' markers
conformance:
    scripts/conformance --write

# the documentation as a site in build/site
docs:
    scripts/check docs

# resolve the dependencies again, with hashes
lock *arguments:
    scripts/lock {{ arguments }}

# what CI runs on a fresh clone
ci:
    bash .ci/run
