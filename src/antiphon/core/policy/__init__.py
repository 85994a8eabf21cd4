"""Decisions that are not verdicts: who claims first, how long to wait, how a tenure ends.

Two nodes may decide differently here and still agree about the log. Pure, like all of the core.
"""
