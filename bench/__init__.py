"""Benchmarks: ratios measured side by side in one run, never absolute numbers on their own.

A module for each command, or a folder where it has worker processes or several forms. `measurement`
is how numbers are taken and printed (`chaos` uses it as well), `signed_log` a log without a mesh.
"""
