"""Plans, as a program puts, lists and drops them."""
