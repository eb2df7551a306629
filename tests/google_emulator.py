"""Runs the emulator of Google Cloud Storage with two features of Google's servers that it lacks.

A download returns the generation of the object in a header. An upload with `ifGenerationMatch`
fails if the object has another generation, because another process wrote the object first.
"""

from http import HTTPStatus

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_download, _insert = objects.download, objects.insert


def download(request, response, storage, *arguments, **named):
    """Downloads an object, and adds its generation to the response."""
    _download(request, response, storage, *arguments, **named)
    bucket, name = request.params["bucket_name"], request.params["object_id"]
    response["x-goog-generation"] = _generation(storage, bucket, name)


def insert(request, response, storage, *arguments, **named):
    """Uploads an object, or refuses if its generation is not `ifGenerationMatch`."""
    if expected := request.query.get("ifGenerationMatch"):
        (name,) = request.query.get("name") or [request.data["meta"]["name"]]
        if expected[0] != _generation(storage, request.params["bucket_name"], name):
            response.status = HTTPStatus.PRECONDITION_FAILED
            response.json({"error": {"code": 412, "message": "PreconditionFailed"}})
            return
    _insert(request, response, storage, *arguments, **named)


def _generation(storage, bucket, name):
    """Returns the generation of an object, "0" if the object does not exist."""
    try:
        return storage.get_file_obj(bucket, name)["generation"]
    except NotFound:
        return "0"


if __name__ == "__main__":
    # Before the import, which builds the emulator's table of handlers.
    objects.download, objects.insert = download, insert
    from gcp_storage_emulator.__main__ import main

    main()
