"""Installs xlj. Version ranges end before the next release that may be incompatible."""

import os
import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

_HERE = Path(__file__).parent
_VERSION = re.search(r'__version__ = "(.+)"', (_HERE / "xlj/__init__.py").read_text("utf-8"))
assert _VERSION, "xlj/__init__.py has no __version__"
_REPOSITORY = os.environ.get("XLJ_REPOSITORY", "").rstrip("/")  # its URL, as in mkdocs.yml

_BUILD = "build>=1.2,<2"
_BEAM = "apache-beam>=2.76,<3"
_FAISS = "faiss-cpu>=1.11,<2"
_TORCH = ["torch>=2.6,<3", "transformers>=5,<6"]
_HUB = "huggingface_hub>=1.31,<3"
_ONNX = ["onnx>=1.17,<2", "onnxruntime>=1.20,<2"]
_PLOTS = "matplotlib>=3.9,<4"
_SEQIO = [  # needs tensorflow-text, which has no wheel for Python 3.14
    "seqio>=0.0.20,<0.1; python_version < '3.14'",
    "tensorflow>=2.20,<2.22; python_version < '3.14'",
    "tensorflow-datasets>=4.9.9,<5; python_version < '3.14'",
]
if os.environ.get("XLJ_SEQIO") == "0":  # saves half of the installation, without seqio: and tfds:
    _SEQIO = []


def _file_url(path: str, view: str = "blob") -> str:
    """Returns the URL of a file in this version's tag; the view `raw` is of pictures."""
    return f"{_REPOSITORY}/{view}/v{_VERSION[1]}/{path}"


def _readme() -> str:
    """Returns README.md, with the URLs of linked files: a package index does not have the files."""
    text = (_HERE / "README.md").read_text("utf-8")
    if not _REPOSITORY:
        return text
    link = re.compile(r"(!?)(\[[^][]*\])\((?!https?://|#)([^)\s]+)\)")
    return link.sub(lambda m: f"{m[1]}{m[2]}({_file_url(m[3], 'raw' if m[1] else 'blob')})", text)


class WithRecipes(build_py):
    """Puts configs/ into a wheel as xlj/recipes/, where `--config=quickstart` finds them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for file in (_HERE / "configs").rglob("*.py"):
                to = Path(self.build_lib, "xlj/recipes", file.relative_to(_HERE / "configs"))
                self.mkpath(str(to.parent))
                self.copy_file(str(file), str(to))


setup(
    name="xlj",
    version=_VERSION[1],
    description="Cross-lingual encoder pretraining in JAX",
    long_description=_readme(),
    long_description_content_type="text/markdown",
    author="The xlj maintainers",
    license="Apache-2.0",
    keywords="JAX, cross-lingual, multilingual, encoder, sentence embeddings, word alignment",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    project_urls={
        "Source": _REPOSITORY,
        "Documentation": _file_url("docs/index.md"),
        "Changelog": _file_url("CHANGELOG.md"),
        "Citation": _file_url("CITATION.cff"),
    }
    if _REPOSITORY
    else {},
    python_requires=">=3.11,<3.15",
    packages=find_packages(include=["xlj*"]),
    # An editable install then adds a path. Python finds packages on paths before a folder without
    # __init__.py, such as a clone named xlj in the current folder.
    package_dir={"": "."},
    package_data={"xlj": ["py.typed", "**/*.css", "**/*.js", "phrasebook/grammars/words/*"]},
    cmdclass={"build_py": WithRecipes},
    entry_points={"console_scripts": ["xlj = xlj.__main__:main"]},
    install_requires=[
        # Models and training.
        "jax>=0.10,<0.13",
        "flax>=0.12,<0.13",
        "chex>=0.1.91,<0.2",
        "optax>=0.2.8,<0.3",
        "orbax-checkpoint>=0.12,<0.13",
        "numpy>=2,<3",
        "scipy>=1.14,<2",
        # Text and rows. sentencepiece 0.2.3 needs protobuf 7, but Apache Beam forbids protobuf 7;
        # with both installed, seqio cannot be imported. Before 0.2.2, sentencepiece has no
        # "offset_mapping".
        *_SEQIO,
        "sentencepiece>=0.2.2,<0.2.3",
        "protobuf",  # for SentencePiece models; TensorFlow and Beam limit the version
        "zstandard>=0.22,<1",
        "pyarrow>=14",  # Parquet; TensorFlow Datasets needs it too
        # Hugging Face folders: tokenizers (rows are built with encode_batch_fast) and weights.
        "tokenizers>=0.21,<0.24",
        "safetensors>=0.4.3,<1",
        # Configs, metrics, progress bars.
        "absl-py>=2.1,<3",
        "ml-collections>=1.0,<2",
        "tensorboard>=2.20,<3",
        "tqdm>=4.66,<5",
    ],
    extras_require={
        "test": [
            "pytest>=8.3,<10",
            "pytest-xdist>=3.6,<4",
            "hypothesis>=6.100,<7",
            "ruff>=0.17,<0.18",
            "mypy>=2.0,<3",
            "pot>=0.9.5,<1",
            _BEAM,
            _BUILD,
            _FAISS,
            _HUB,
            *_ONNX,
            _PLOTS,
        ],
        "beam": [_BEAM],
        # Text, rows and workdirs in buckets. Each needs the fsspec of the same release.
        "cloud": ["gcsfs>=2026.1", "s3fs>=2026.1"],
        "cuda": ["jax[cuda13]>=0.10,<0.13; sys_platform == 'linux'"],
        # Emulated buckets, for tests of the extra "cloud".
        "emulators": ["gcp-storage-emulator>=2026.1", "moto[server]>=5,<6"],
        # Mining with an approximate index: xlj.mine --search=faiss.
        "faiss": [_FAISS],
        # Text and models of the Hugging Face hub: hf://
        "hub": [_HUB],
        # ONNX graphs: xlj convert export --format=onnx, and --backend=onnx.
        "onnx": _ONNX,
        # The documentation site: mkdocs build --strict
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.6,<10"],
        # Tests that compare xlj with transformers, PyTorch and trec_eval.
        "parity": [*_TORCH, "pytrec-eval-terrier>=0.5.6,<1"],
        # Scores of mteb's tasks: mteb.evaluate(xlj.load(path), tasks)
        "mteb": ["mteb>=2.26,<3"],
        # Libraries that xlj.bench compares xlj with.
        "peers": [*_TORCH, "simalign>=0.4,<1", "sentence-transformers>=5,<7"],
        # Building and uploading a release (CONTRIBUTING.md).
        "release": [_BUILD, "twine>=6,<8"],
        # Plots of xlj.align and xlj.retrieve: error rates and accuracies by layer.
        "plots": [_PLOTS],
        "tpu": ["jax[tpu]>=0.10,<0.13"],
    },
)
