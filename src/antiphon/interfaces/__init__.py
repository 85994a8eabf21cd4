"""Ways in and out for people and programs; each is thin and speaks to the SDK only."""
