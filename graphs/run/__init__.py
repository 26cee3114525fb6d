"""Parts common to all graphs: the run, its tasks and steps, its journal, and its execution."""
