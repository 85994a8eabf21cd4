"""One module per command, in folders by subject."""
