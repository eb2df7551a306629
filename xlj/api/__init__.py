"""What other programs call, and the commands too: a trained encoder, and runs of a config."""

from xlj.api.encoder import Encoder, Filling, load
from xlj.api.runs import fine_tune, pretrain
