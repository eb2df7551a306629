"""XLA's flags for processes that tests start."""

import os
import re


def with_devices(count: int = 1) -> str:
    """Returns the flags of this process, which shorten compilation, with another number of fake
    devices."""
    flags = os.environ.get("XLA_FLAGS", "")
    return re.sub(r"(host_platform_device_count=)\d+", rf"\g<1>{count}", flags)
