"""`chaos tamper`: a bundle that was changed in any way is refused, and never crashes the check."""
