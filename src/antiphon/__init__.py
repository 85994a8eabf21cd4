"""Antiphon: a job mesh whose every step is signed, ordered and checkable.

The public names live here and are resolved on first use, so that importing the package is cheap.
Nothing inside the package imports this module: the layers below never look up.
"""
