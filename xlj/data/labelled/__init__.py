"""Labelled examples of downstream tasks: reading them, and converting them to rows."""
