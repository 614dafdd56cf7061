"""The generated modules match our ``.proto`` files, and these match the published API."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor

from ebbtide.actors.edges.cri import api_pb2
from tests.actors.edges.cri import making_pb2
from tests.actors.edges.cri.generate import PROTOS, generate

MODULES: tuple[FileDescriptor, ...] = (api_pb2.DESCRIPTOR, making_pb2.DESCRIPTOR)


def test_generated_code_is_current(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    made = tmp_path / "made"
    generate(f"--descriptor_set_out={made}")
    files = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    assert [file.name for file in files] == list(PROTOS)
    for file, module in zip(files, MODULES, strict=True):
        committed = descriptor_pb2.FileDescriptorProto()
        module.CopyToProto(committed)
        for each in (file, committed):
            each.ClearField("source_code_info")
        _plain(file)
        _plain(committed)
        assert file == committed, f"{file.name}: run python -m tests.actors.edges.cri.generate"


def _plain(file: descriptor_pb2.FileDescriptorProto) -> None:
    """Drop the JSON names: only the generator's own output has them."""
    todo = list(file.message_type)
    while todo:
        message = todo.pop()
        todo += message.nested_type
        for field in message.field:
            field.ClearField("json_name")
