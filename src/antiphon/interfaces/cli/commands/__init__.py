"""One module per command, in folders by what the command is about."""
