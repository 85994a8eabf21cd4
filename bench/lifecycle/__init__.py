"""`bench lifecycle`: a whole job through Antiphon, beside the same writes on the bare engine."""
