"""Files and processes: atomic writes, hashes, JSON, compressed text, storage, child processes."""
