"""The pure heart: everything that decides, and nothing that acts.

No IO, no clock, no randomness, no logging: time, bytes and chance are arguments. That is what
lets every verdict be replayed, simulated and property-tested (spec §2).
"""
