"""The digest of a module identifies the source code that text depends on."""

from xlj.data.text import sources


def test_the_digest_of_a_module_needs_no_import(tmp_path, monkeypatch):
    package = tmp_path / "unimportable"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError")
    (package / "inner.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(tmp_path)
    before = sources.module_digest("unimportable.inner")
    (package / "inner.py").write_text("pass")
    assert sources.module_digest("unimportable.inner") != before
