"""Arrays distributed over ranks, as tasks: one part a rank, redistributed or with halos."""
