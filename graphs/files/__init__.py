"""Local array files as tasks: scatter, gather, and update of halos."""
