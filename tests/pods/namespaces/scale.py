"""Whether tests take the times and numbers that the job must stand (--full), or shorter ones."""

full = False
