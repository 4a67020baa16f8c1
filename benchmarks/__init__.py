"""Benchmarks of leansvm: ratios measured in one run, printed as tables and saved as JSON.

Run ``python -m benchmarks --help`` from the repository's root; README.md says what each one shows.
"""
