"""Files and processes: atomic writes, hashes, JSON, compressed text, child processes."""
