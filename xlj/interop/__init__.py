"""In from and out to other projects: their vocabularies, dictionaries and weights."""
