"""The learned kernel: a sample of rows, the leave-one-out error and its gradient, the search."""
