"""What a pretrained encoder is used for."""
