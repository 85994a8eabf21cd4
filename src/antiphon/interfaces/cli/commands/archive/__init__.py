"""`antiphon archive`: what an archive holds, whether it is whole, and a job in it."""
