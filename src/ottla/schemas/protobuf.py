"""Protobuf schemas: compiled by protoc to a descriptor set, printed by `proto_print`.

Rules:

- The text is a `.proto` file, or base64 of a serialised `FileDescriptorProto`, which Python's
  clients send. Both give the same schema.
- A reference's name is the path by which it is imported. Files of `google/protobuf` are known, and
  those of `proto_known`.
- protoc reads files, so a temporary directory has them for the time of the call.
"""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
import warnings
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.schemas.model import InvalidSchema, Kind, Parsed
from ottla.schemas.proto_known import KNOWN
from ottla.schemas.proto_print import printed, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
"""No text of a `.proto` file fits: each has a semicolon or a brace."""
PART = re.compile(r"[^/\\\x00-\x1f]{1,255}")
MAX_PATH = 1_000
"""Characters of an import's path: the temporary directory comes before it."""


def parse(text: str, references: Mapping[str, str]) -> Parsed:
    """Parse the schema; `references` are the files that it may import, by path."""
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    others = {**KNOWN, **{name: _as_text(other) for name, other in references.items()}}
    given = _descriptor(text)
    if given is not None:
        imports = "".join(f"import {quoted(name)};\n" for name in given.dependency)
        files = _compiled(f'syntax = "proto3";\n{imports}', others)
        given.name = files.file[-1].name
        files.file[-1].CopyFrom(given)
        text = _printed(files)
    files = _compiled(text, others)
    normalized = printed(files, normalize=True)
    return Parsed(Kind.PROTOBUF, printed(files), normalized, files.SerializeToString())


def _descriptor(text: str) -> FileDescriptorProto | None:
    """The descriptor that a text has in base64; None if it is a `.proto` file."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    if not BASE64.fullmatch(text):
        return None
    try:
        return FileDescriptorProto.FromString(
            base64.b64decode("".join(text.split()), validate=True)
        )
    except (binascii.Error, DecodeError):
        raise InvalidSchema(
            "the schema is neither a .proto file nor base64 of a FileDescriptorProto"
        ) from None


def _as_text(text: str) -> str:
    """A reference as a `.proto` file; its types count, not what users have set as options."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    file = _descriptor(text)
    return text if file is None else _printed(FileDescriptorSet(file=[file]))


def _printed(files: FileDescriptorSet) -> str:
    try:
        return printed(files)
    except (IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise InvalidSchema(f"the descriptor is not valid: {error!r}"[:500]) from None


def _compiled(text: str, others: Mapping[str, str]) -> FileDescriptorSet:
    """The descriptors of all that the text imports, and of the text, which is the last one."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import _protoc_compiler as protoc  # the public module hooks into imports

    own = "schema.proto"
    while own in others:
        own = f"_{own}"
    with tempfile.TemporaryDirectory(prefix="ottla-schema-") as directory:
        root = Path(directory, "files")
        root.mkdir()
        for name, other in {**others, own: text}.items():
            _write(root, name, other)
        paths = [str(root), str(resources("grpc_tools") / "_proto")]
        _check(protoc, own, paths)
        output = Path(directory, "descriptors")
        arguments = [
            "protoc",
            *(f"-I{path}" for path in paths),
            "--include_imports",
            f"--descriptor_set_out={output}",
            own,
        ]
        if protoc.run_main([argument.encode() for argument in arguments]):
            raise InvalidSchema("protoc refuses the schema")
        return FileDescriptorSet.FromString(output.read_bytes())


def _check(protoc: Any, own: str, paths: list[str]) -> None:
    """Errors as values: `run_main` prints them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unused imports and the like
        try:
            protoc.get_protos(own.encode(), [path.encode() for path in paths])
        except protoc.ProtocErrors as error:
            raise _problem(error.errors()[0], own) from None
        except Exception as error:  # noqa: BLE001  # it has no class of its own for others
            raise InvalidSchema(str(error)[:500]) from None


def _problem(error: Any, own: str) -> InvalidSchema:
    """An error of protoc; lines count from 0, and one that is missing is -1."""
    file = error.filename.decode(errors="replace")
    message = error.message.decode(errors="replace")[:500]
    if error.line >= 0:
        where = "" if file == own else f"{file}, "
        return InvalidSchema(message, f"{where}line {error.line + 1}, column {error.column + 1}")
    if file == own:
        return InvalidSchema(message)
    return InvalidSchema(f"import {file!r}: {message} Add a reference of that name, or mend it")


def _write(root: Path, name: str, text: str) -> None:
    parts = name.split("/")
    if len(name) > MAX_PATH or not all(
        PART.fullmatch(part) and part not in (".", "..") for part in parts
    ):
        raise InvalidSchema(f"{name[:100]!r} is no path that can be imported")
    path = root.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:  # "a" and "a/b": one cannot be both
        raise InvalidSchema(f"{name[:100]!r} is no path that can be imported: {error}") from None
