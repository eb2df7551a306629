"""Cross-lingual contrast, XLCO (InfoXLM)."""
