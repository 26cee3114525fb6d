"""Recovery of stopped runs of all jobs: resuming them, or removing their remains."""
