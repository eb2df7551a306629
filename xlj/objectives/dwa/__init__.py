"""Denoising word alignment, DWA, with TLM (XLM-Align)."""
