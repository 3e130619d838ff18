import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SignalScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIGNAL_SCOPE_UNSPECIFIED: _ClassVar[SignalScope]
    SIGNAL_SCOPE_TREE: _ClassVar[SignalScope]
    SIGNAL_SCOPE_GROUP: _ClassVar[SignalScope]
    SIGNAL_SCOPE_PROCESS: _ClassVar[SignalScope]
SIGNAL_SCOPE_UNSPECIFIED: SignalScope
SIGNAL_SCOPE_TREE: SignalScope
SIGNAL_SCOPE_GROUP: SignalScope
SIGNAL_SCOPE_PROCESS: SignalScope

class TerminalSize(_message.Message):
    __slots__ = ("cols", "rows")
    COLS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    cols: int
    rows: int
    def __init__(self, cols: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class ResourceLimit(_message.Message):
    __slots__ = ("name", "soft", "hard")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    HARD_FIELD_NUMBER: _ClassVar[int]
    name: str
    soft: int
    hard: int
    def __init__(self, name: _Optional[str] = ..., soft: _Optional[int] = ..., hard: _Optional[int] = ...) -> None: ...

class ProcessSpec(_message.Message):
    __slots__ = ("command", "env", "clear_env", "cwd", "user", "terminal", "timeout", "limits", "stdin", "output_buffer_bytes", "tag")
    class EnvEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    CLEAR_ENV_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BUFFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.ScalarMap[str, str]
    clear_env: bool
    cwd: str
    user: str
    terminal: TerminalSize
    timeout: _duration_pb2.Duration
    limits: _containers.RepeatedCompositeFieldContainer[ResourceLimit]
    stdin: bool
    output_buffer_bytes: int
    tag: str
    def __init__(self, command: _Optional[_Iterable[str]] = ..., env: _Optional[_Mapping[str, str]] = ..., clear_env: _Optional[bool] = ..., cwd: _Optional[str] = ..., user: _Optional[str] = ..., terminal: _Optional[_Union[TerminalSize, _Mapping]] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., limits: _Optional[_Iterable[_Union[ResourceLimit, _Mapping]]] = ..., stdin: _Optional[bool] = ..., output_buffer_bytes: _Optional[int] = ..., tag: _Optional[str] = ...) -> None: ...

class StartRequest(_message.Message):
    __slots__ = ("spec", "idempotency_key", "detach", "kill_on_disconnect")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    DETACH_FIELD_NUMBER: _ClassVar[int]
    KILL_ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    spec: ProcessSpec
    idempotency_key: str
    detach: bool
    kill_on_disconnect: bool
    def __init__(self, spec: _Optional[_Union[ProcessSpec, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., detach: _Optional[bool] = ..., kill_on_disconnect: _Optional[bool] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("idempotency_key",)
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    idempotency_key: str
    def __init__(self, idempotency_key: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class RunRequest(_message.Message):
    __slots__ = ("spec", "idempotency_key", "stdin", "output_bytes_max")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    STDIN_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    spec: ProcessSpec
    idempotency_key: str
    stdin: bytes
    output_bytes_max: int
    def __init__(self, spec: _Optional[_Union[ProcessSpec, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., stdin: _Optional[bytes] = ..., output_bytes_max: _Optional[int] = ...) -> None: ...

class RunResponse(_message.Message):
    __slots__ = ("id", "exit", "stdout", "stderr", "stdout_dropped_bytes", "stderr_dropped_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    STDOUT_DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STDERR_DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    exit: Exit
    stdout: bytes
    stderr: bytes
    stdout_dropped_bytes: int
    stderr_dropped_bytes: int
    def __init__(self, id: _Optional[str] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ..., stdout: _Optional[bytes] = ..., stderr: _Optional[bytes] = ..., stdout_dropped_bytes: _Optional[int] = ..., stderr_dropped_bytes: _Optional[int] = ...) -> None: ...

class AttachRequest(_message.Message):
    __slots__ = ("id", "from_offset", "no_follow")
    ID_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    id: str
    from_offset: int
    no_follow: bool
    def __init__(self, id: _Optional[str] = ..., from_offset: _Optional[int] = ..., no_follow: _Optional[bool] = ...) -> None: ...

class ProcessEvent(_message.Message):
    __slots__ = ("started", "stdout", "stderr", "dropped", "exit")
    STARTED_FIELD_NUMBER: _ClassVar[int]
    STDOUT_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    started: Process
    stdout: Output
    stderr: Output
    dropped: Dropped
    exit: Exit
    def __init__(self, started: _Optional[_Union[Process, _Mapping]] = ..., stdout: _Optional[_Union[Output, _Mapping]] = ..., stderr: _Optional[_Union[Output, _Mapping]] = ..., dropped: _Optional[_Union[Dropped, _Mapping]] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("data", "offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    offset: int
    def __init__(self, data: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class Dropped(_message.Message):
    __slots__ = ("from_offset", "to_offset")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    to_offset: int
    def __init__(self, from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ...) -> None: ...

class Exit(_message.Message):
    __slots__ = ("code", "signal", "timed_out", "finished_at", "output_offset")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    TIMED_OUT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    code: int
    signal: str
    timed_out: bool
    finished_at: _timestamp_pb2.Timestamp
    output_offset: int
    def __init__(self, code: _Optional[int] = ..., signal: _Optional[str] = ..., timed_out: _Optional[bool] = ..., finished_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., output_offset: _Optional[int] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("id", "number", "pid", "command", "cwd", "user", "tag", "terminal", "started_at", "exit", "output_start", "output_end", "replayed")
    ID_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    CWD_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    EXIT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_START_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_END_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    id: str
    number: int
    pid: int
    command: _containers.RepeatedScalarFieldContainer[str]
    cwd: str
    user: str
    tag: str
    terminal: bool
    started_at: _timestamp_pb2.Timestamp
    exit: Exit
    output_start: int
    output_end: int
    replayed: bool
    def __init__(self, id: _Optional[str] = ..., number: _Optional[int] = ..., pid: _Optional[int] = ..., command: _Optional[_Iterable[str]] = ..., cwd: _Optional[str] = ..., user: _Optional[str] = ..., tag: _Optional[str] = ..., terminal: _Optional[bool] = ..., started_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., exit: _Optional[_Union[Exit, _Mapping]] = ..., output_start: _Optional[int] = ..., output_end: _Optional[int] = ..., replayed: _Optional[bool] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("process",)
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: Process
    def __init__(self, process: _Optional[_Union[Process, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("running_only",)
    RUNNING_ONLY_FIELD_NUMBER: _ClassVar[int]
    running_only: bool
    def __init__(self, running_only: _Optional[bool] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("processes",)
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[Process]
    def __init__(self, processes: _Optional[_Iterable[_Union[Process, _Mapping]]] = ...) -> None: ...

class WaitRequest(_message.Message):
    __slots__ = ("id", "timeout")
    ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    id: str
    timeout: _duration_pb2.Duration
    def __init__(self, id: _Optional[str] = ..., timeout: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WaitResponse(_message.Message):
    __slots__ = ("process",)
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    process: Process
    def __init__(self, process: _Optional[_Union[Process, _Mapping]] = ...) -> None: ...

class SignalRequest(_message.Message):
    __slots__ = ("id", "signal", "scope")
    ID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    id: str
    signal: str
    scope: SignalScope
    def __init__(self, id: _Optional[str] = ..., signal: _Optional[str] = ..., scope: _Optional[_Union[SignalScope, str]] = ...) -> None: ...

class SignalResponse(_message.Message):
    __slots__ = ("signalled",)
    SIGNALLED_FIELD_NUMBER: _ClassVar[int]
    signalled: int
    def __init__(self, signalled: _Optional[int] = ...) -> None: ...

class WriteStdinRequest(_message.Message):
    __slots__ = ("id", "data", "close")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: bytes
    close: bool
    def __init__(self, id: _Optional[str] = ..., data: _Optional[bytes] = ..., close: _Optional[bool] = ...) -> None: ...

class WriteStdinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StreamStdinRequest(_message.Message):
    __slots__ = ("id", "data", "keep_open")
    ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    KEEP_OPEN_FIELD_NUMBER: _ClassVar[int]
    id: str
    data: bytes
    keep_open: bool
    def __init__(self, id: _Optional[str] = ..., data: _Optional[bytes] = ..., keep_open: _Optional[bool] = ...) -> None: ...

class StreamStdinResponse(_message.Message):
    __slots__ = ("bytes_written",)
    BYTES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    bytes_written: int
    def __init__(self, bytes_written: _Optional[int] = ...) -> None: ...

class ResizeRequest(_message.Message):
    __slots__ = ("id", "size")
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    id: str
    size: TerminalSize
    def __init__(self, id: _Optional[str] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class ResizeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
