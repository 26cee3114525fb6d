"""What all graphs have in common: the run, its tasks and steps, its journal, and carrying it out."""
