"""A grammar for each language of the phrasebook."""
