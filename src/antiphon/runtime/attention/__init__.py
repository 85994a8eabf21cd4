"""What a node's services could not deal with: set aside, kept with the reason, tried again."""
