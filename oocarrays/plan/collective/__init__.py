"""Collective reads and writes: file domains, rounds, who sends what to whom, and which way is best."""
