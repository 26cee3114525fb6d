"""All-to-all exchanges: schedules, networks, and predicted seconds."""
