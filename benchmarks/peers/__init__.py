"""Ways to answer cases: functions run(job) -> dict, which make `job.target` and tell what they know of themselves."""
