"""Plans, exchanges, schedules, advice and sweeps, drawn with matplotlib."""
