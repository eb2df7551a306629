"""The PyTorch module that an exported folder carries if its encoder has a relative position bias.

The other two files of this folder are copied into it as they are, and transformers runs them there
(`trust_remote_code=True`). So they import torch and transformers only, and nothing of xlj imports
them.
"""
