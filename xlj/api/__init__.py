"""What other programs call, and the commands too: a trained encoder, and runs of a config."""
