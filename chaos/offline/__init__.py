"""`chaos offline`: two laptops that touch the same things without a connection."""
