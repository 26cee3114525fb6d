"""Jobs: runs that are planned first and executed on request; one module for each kind."""
