"""The daemon's messages, compiled from spec/proto when the tests start.

The SDK encodes its few messages by hand; these are what it is compared with, so that no generated code is kept for it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

_PROTOS = Path(__file__).resolve().parents[4] / "spec/proto"
_WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"


def _messages() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "process.binpb"
        includes = [f"-I{_PROTOS}", f"-I{_WELL_KNOWN}", "--include_imports"]
        if protoc.main(["protoc", *includes, f"--descriptor_set_out={out}", "agentsandbox/v1/process.proto"]) != 0:
            raise RuntimeError("spec/proto/agentsandbox/v1/process.proto does not compile")
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return message_factory.GetMessages(list(files.file), descriptor_pool.DescriptorPool())


_found = _messages()
AttachRequest = _found["agentsandbox.v1.AttachRequest"]
ProcessEvent = _found["agentsandbox.v1.ProcessEvent"]
StartRequest = _found["agentsandbox.v1.StartRequest"]
