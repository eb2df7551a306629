"""Plans runs for chips that need not be present: memory, traffic and speed of compiled programs."""
