"""Loads trained encoders, and runs encoders and task heads on many rows."""
