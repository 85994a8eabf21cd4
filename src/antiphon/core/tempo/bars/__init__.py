"""What happened in a bar: facts, their sums, key figures, alarms. Pure, and in any order."""
