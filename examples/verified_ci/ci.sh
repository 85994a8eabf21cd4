#!/bin/sh
# What the plan runs for each commit, in a sandbox: the files of the commit are in source.tar.
set -e
tar -xof source.tar
python3 -m unittest --verbose
