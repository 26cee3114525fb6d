"""Recovery of interrupted runs of all jobs: resuming them, and their progress."""
