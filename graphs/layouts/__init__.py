"""Arrays that are shared out over ranks, as tasks: a part a rank, redistributed or with halos."""
