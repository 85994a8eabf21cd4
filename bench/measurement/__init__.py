"""How numbers are taken and printed, the same for every benchmark and chaos command.

Nothing here knows Antiphon.
"""
