"""A rechunk, or that of a whole group, as tasks: begun, exchanged, finished, and gone on with."""
