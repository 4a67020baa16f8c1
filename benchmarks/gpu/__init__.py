"""Fits on a GPU: the large sets of zhou2016 and ten million generated rows."""
