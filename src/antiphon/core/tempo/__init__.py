"""Time in beats (spec §11): beats, bars and phases, the tempo policy, scores, budgets, the pulse.

Pure: the time is an argument. A beat follows from the time and a meter. No verdict depends on it.
"""
