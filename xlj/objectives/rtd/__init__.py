"""Replaced token detection: MRTD and TRTD (XLM-E)."""
