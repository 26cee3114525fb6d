"""What a person asks for, as a program gives it and as it is typed: where, how much, which chunks."""
