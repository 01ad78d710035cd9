"""Plans of other systems, imported: Shardy's pass, XLA's compiled HLO, DTensor's planner."""
