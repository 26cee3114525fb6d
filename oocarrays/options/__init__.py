"""Options of jobs, as Python arguments and as text: location, memory, chunks and shapes."""
