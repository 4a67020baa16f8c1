"""Shared by the selectors that choose the best of a few random rows, again and again.

`pool` says which rows compete, `best_of` takes one at a time, `rounds` several for one look at
the rows, with the squared-loss fit on the basis so far.
"""
