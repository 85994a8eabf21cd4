"""Time in beats at run time: what sends beats, sums up bars, and counts both (spec §11)."""
