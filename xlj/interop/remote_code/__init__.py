"""The PyTorch module that an exported folder carries if its encoder has a relative position bias.

The other two files of this folder are copied into it as they are, and transformers runs them there
(`trust_remote_code=True`). So they import torch and transformers only, and nothing of xlj imports
them.
"""

import shutil
from pathlib import Path

_CONFIGURATION, _MODELING = "configuration_xlj", "modeling_xlj"

AUTO_MAP = {
    "AutoConfig": f"{_CONFIGURATION}.XljConfig",
    "AutoModel": f"{_MODELING}.XljModel",
    "AutoModelForMaskedLM": f"{_MODELING}.XljForMaskedLM",
    "AutoModelForSequenceClassification": f"{_MODELING}.XljForSequenceClassification",
    "AutoModelForTokenClassification": f"{_MODELING}.XljForTokenClassification",
}
"""What config.json says of the classes."""


def copy_to(folder: Path) -> None:
    """Puts the two files into an exported folder."""
    for name in (_CONFIGURATION, _MODELING):
        shutil.copyfile(Path(__file__).parent / f"{name}.py", folder / f"{name}.py")
