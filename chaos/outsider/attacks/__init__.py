"""The attempts of `chaos outsider`, a module for each way in.

A module ends with its list of attempts; `command.py` puts the lists together. What several of them
need to make an attack (an own subject, a forged record) comes from the module whose subject it is.
"""
