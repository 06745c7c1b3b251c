"""Whether tests run with full durations and counts (--full), or shorter ones."""

full = False
