"""PyTorch code that exported folders contain if the encoder has a relative position bias.

The other two files of this package are copied into the folder, and transformers runs them there
(`trust_remote_code=True`). Therefore they import torch and transformers only, and nothing in xlj
imports them.
"""
