"""Loads trained encoders, and runs them on many rows."""
