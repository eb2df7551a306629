"""The emulator of gs:// as a program, with what Google's own answers have and its lack: the number
of an object's generation when it is read, and refusals of what another was faster to write."""

from http import HTTPStatus

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

_download, _insert = objects.download, objects.insert


def download(request, response, storage, *arguments, **named):
    """As the emulator's, with the generation."""
    _download(request, response, storage, *arguments, **named)
    bucket, name = request.params["bucket_name"], request.params["object_id"]
    response["x-goog-generation"] = _generation(storage, bucket, name)


def insert(request, response, storage, *arguments, **named):
    """As the emulator's, unless the object has another generation than the one asked for."""
    if wanted := request.query.get("ifGenerationMatch"):
        (name,) = request.query.get("name") or [request.data["meta"]["name"]]
        if wanted[0] != _generation(storage, request.params["bucket_name"], name):
            response.status = HTTPStatus.PRECONDITION_FAILED
            response.json({"error": {"code": 412, "message": "PreconditionFailed"}})
            return
    _insert(request, response, storage, *arguments, **named)


def _generation(storage, bucket, name):
    """0 if there is no such object."""
    try:
        return storage.get_file_obj(bucket, name)["generation"]
    except NotFound:
        return "0"


if __name__ == "__main__":
    objects.download, objects.insert = download, insert  # before its table of handlers is made
    from gcp_storage_emulator.__main__ import main

    main()
