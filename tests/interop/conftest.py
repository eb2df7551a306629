"""Where transformers puts the code of folders that carry some."""

import pytest


@pytest.fixture(scope="session")
def code_cache(tmp_path_factory):
    """A cache of the session's own. One for all tests: Python finds a package in one place."""
    transformers = pytest.importorskip("transformers", reason="pip install '.[parity]'")
    folder = tmp_path_factory.mktemp("code_cache")
    with pytest.MonkeyPatch.context() as patch:
        for module in (transformers.dynamic_module_utils, transformers.utils):
            patch.setattr(module, "HF_MODULES_CACHE", str(folder))
        patch.syspath_prepend(folder)
        yield folder
