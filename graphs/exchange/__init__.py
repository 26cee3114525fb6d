"""Exchanges between workers: tasks that send, carry and receive the bytes of each rank."""
