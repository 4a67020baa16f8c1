"""Newton's method for smooth losses on any basis (zhou2013)."""
