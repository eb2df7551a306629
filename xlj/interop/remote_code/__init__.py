"""PyTorch code that exported folders contain if the encoder has a relative position bias.

An export copies the other two files of this package into the folder, where transformers runs them
(`trust_remote_code=True`). Therefore these files import only torch and transformers, and nothing in
xlj imports them.
"""
