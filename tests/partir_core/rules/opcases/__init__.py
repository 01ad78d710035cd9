"""Operations to try rules on, and an independent reading of what a rule says."""
