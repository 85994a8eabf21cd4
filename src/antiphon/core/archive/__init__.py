"""The archive's files: what is in each, where it lies, and how it is checked (spec §7.5).

The form is that of C2SP's tiled transparency logs, so that their tools can read it. Here is no
file and no network: `runtime/archive` stores and fetches.
"""
