"""What runs use up and what that costs: the primitives, the rates and the formula.

Pure. Nothing here knows beats or budgets: those are in `antiphon.core.tempo`.
"""
