"""The pure part of Antiphon: everything that decides, and nothing that acts.

No IO, no clock, no randomness, no logging: time, bytes and random numbers are arguments. So every
verdict can be replayed, simulated and property-tested (spec §2).
"""
