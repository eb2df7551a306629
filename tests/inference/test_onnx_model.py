"""The digest of a folder with a graph changes with each file that determines its vectors."""

from xlj.inference import onnx_model
from xlj.interop.onnx_graph import DATA_SUFFIX
from xlj.interop.onnx_names import FILES
from xlj.interop.tokenizer_files import JSON


def test_a_digest_covers_the_tokenizer_the_graph_and_its_external_data(tmp_path):
    graph = FILES["float32"]
    files = [tmp_path / name for name in (JSON, graph, graph + DATA_SUFFIX)]
    files[1].parent.mkdir()
    for file in files:
        file.write_bytes(b"old")
    digests = [onnx_model.digest(tmp_path, "float32")]
    for file in files:
        file.write_bytes(b"new")
        digests.append(onnx_model.digest(tmp_path, "float32"))
    (tmp_path / "README.md").write_text("not a part of the model")
    assert onnx_model.digest(tmp_path, "float32") == digests[-1]
    files[2].unlink()
    digests.append(onnx_model.digest(tmp_path, "float32"))
    assert len(set(digests)) == 5
