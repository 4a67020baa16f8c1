"""The squared loss on any basis: sums over rows, factors, criteria, answers without a row."""
