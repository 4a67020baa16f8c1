"""The profile of long runs: ``pytest tests/fuzz --hypothesis-profile=slow`` (make fuzz)."""

from hypothesis import settings

settings.register_profile("slow", max_examples=50_000, derandomize=False, print_blob=True)
