"""Fine-tuning on classification, tagging and question answering."""
