"""Token rows: packed, stored, and drawn into the batch of each step."""
