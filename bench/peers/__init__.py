"""`bench peers`: the same jobs through Antiphon and through other job queues, in turn."""
