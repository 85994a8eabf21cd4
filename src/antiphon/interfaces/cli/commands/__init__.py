"""One module per command, in folders by subject, and nothing else.

A module here is a command by being here: it declares the one of its own name.
"""
