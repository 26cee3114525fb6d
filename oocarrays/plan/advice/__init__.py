"""Which layout stored arrays should have, and which way of reading them: from what is known of their use."""
