"""In from and out to Hugging Face: weights, tokenizers, vocabularies of another model."""
