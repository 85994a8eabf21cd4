"""Time in beats for programs: the tempo, callbacks on beats, status claims (spec §11)."""
