"""`chaos hostile --only reader --right R`: what a member with one right can do to the others."""
