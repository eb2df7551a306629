"""Fine-tuning on rows with labels."""
