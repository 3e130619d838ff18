import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FileType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_TYPE_UNSPECIFIED: _ClassVar[FileType]
    FILE_TYPE_FILE: _ClassVar[FileType]
    FILE_TYPE_DIRECTORY: _ClassVar[FileType]
    FILE_TYPE_SYMLINK: _ClassVar[FileType]
    FILE_TYPE_OTHER: _ClassVar[FileType]

class WatchEventType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WATCH_EVENT_TYPE_UNSPECIFIED: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_READY: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_CREATE: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_WRITE: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_REMOVE: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_RENAME: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_ATTRIBUTES: _ClassVar[WatchEventType]
    WATCH_EVENT_TYPE_OVERFLOW: _ClassVar[WatchEventType]
FILE_TYPE_UNSPECIFIED: FileType
FILE_TYPE_FILE: FileType
FILE_TYPE_DIRECTORY: FileType
FILE_TYPE_SYMLINK: FileType
FILE_TYPE_OTHER: FileType
WATCH_EVENT_TYPE_UNSPECIFIED: WatchEventType
WATCH_EVENT_TYPE_READY: WatchEventType
WATCH_EVENT_TYPE_CREATE: WatchEventType
WATCH_EVENT_TYPE_WRITE: WatchEventType
WATCH_EVENT_TYPE_REMOVE: WatchEventType
WATCH_EVENT_TYPE_RENAME: WatchEventType
WATCH_EVENT_TYPE_ATTRIBUTES: WatchEventType
WATCH_EVENT_TYPE_OVERFLOW: WatchEventType

class FileInfo(_message.Message):
    __slots__ = ("name", "path", "type", "size_bytes", "mode", "uid", "gid", "modified_at", "link_target", "etag", "raw_path")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_AT_FIELD_NUMBER: _ClassVar[int]
    LINK_TARGET_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    type: FileType
    size_bytes: int
    mode: int
    uid: int
    gid: int
    modified_at: _timestamp_pb2.Timestamp
    link_target: str
    etag: str
    raw_path: bytes
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., type: _Optional[_Union[FileType, str]] = ..., size_bytes: _Optional[int] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., modified_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., link_target: _Optional[str] = ..., etag: _Optional[str] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class StatRequest(_message.Message):
    __slots__ = ("path", "no_follow", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    NO_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    no_follow: bool
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., no_follow: _Optional[bool] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class StatResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class ListFilesRequest(_message.Message):
    __slots__ = ("path", "depth", "page_size", "page_token", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    depth: int
    page_size: int
    page_token: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., depth: _Optional[int] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class ListFilesResponse(_message.Message):
    __slots__ = ("files", "next_page_token")
    FILES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileInfo]
    next_page_token: str
    def __init__(self, files: _Optional[_Iterable[_Union[FileInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MakeDirRequest(_message.Message):
    __slots__ = ("path", "mode", "parents", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    mode: int
    parents: bool
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., mode: _Optional[int] = ..., parents: _Optional[bool] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class MakeDirResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class MoveRequest(_message.Message):
    __slots__ = ("to", "overwrite", "raw_from", "raw_to")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    RAW_FROM_FIELD_NUMBER: _ClassVar[int]
    RAW_TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    overwrite: bool
    raw_from: bytes
    raw_to: bytes
    def __init__(self, to: _Optional[str] = ..., overwrite: _Optional[bool] = ..., raw_from: _Optional[bytes] = ..., raw_to: _Optional[bytes] = ..., **kwargs) -> None: ...

class MoveResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("to", "overwrite", "recursive", "raw_from", "raw_to")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OVERWRITE_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    RAW_FROM_FIELD_NUMBER: _ClassVar[int]
    RAW_TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    overwrite: bool
    recursive: bool
    raw_from: bytes
    raw_to: bytes
    def __init__(self, to: _Optional[str] = ..., overwrite: _Optional[bool] = ..., recursive: _Optional[bool] = ..., raw_from: _Optional[bytes] = ..., raw_to: _Optional[bytes] = ..., **kwargs) -> None: ...

class CopyResponse(_message.Message):
    __slots__ = ("file", "files_copied", "bytes_copied")
    FILE_FIELD_NUMBER: _ClassVar[int]
    FILES_COPIED_FIELD_NUMBER: _ClassVar[int]
    BYTES_COPIED_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    files_copied: int
    bytes_copied: int
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ..., files_copied: _Optional[int] = ..., bytes_copied: _Optional[int] = ...) -> None: ...

class RemoveRequest(_message.Message):
    __slots__ = ("path", "recursive", "missing_ok", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    MISSING_OK_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    recursive: bool
    missing_ok: bool
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., recursive: _Optional[bool] = ..., missing_ok: _Optional[bool] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class RemoveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetAttributesRequest(_message.Message):
    __slots__ = ("path", "mode", "uid", "gid", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    GID_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    mode: int
    uid: int
    gid: int
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., mode: _Optional[int] = ..., uid: _Optional[int] = ..., gid: _Optional[int] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class SetAttributesResponse(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: FileInfo
    def __init__(self, file: _Optional[_Union[FileInfo, _Mapping]] = ...) -> None: ...

class GlobRequest(_message.Message):
    __slots__ = ("pattern", "path", "limit", "raw_path")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    path: str
    limit: int
    raw_path: bytes
    def __init__(self, pattern: _Optional[str] = ..., path: _Optional[str] = ..., limit: _Optional[int] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class GlobResponse(_message.Message):
    __slots__ = ("files", "truncated")
    FILES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[FileInfo]
    truncated: bool
    def __init__(self, files: _Optional[_Iterable[_Union[FileInfo, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class SearchRequest(_message.Message):
    __slots__ = ("path", "pattern", "ignore_case", "include", "exclude", "limit", "literal", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CASE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    LITERAL_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    pattern: str
    ignore_case: bool
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    literal: bool
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., pattern: _Optional[str] = ..., ignore_case: _Optional[bool] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., literal: _Optional[bool] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("match", "summary")
    MATCH_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    match: SearchMatch
    summary: SearchSummary
    def __init__(self, match: _Optional[_Union[SearchMatch, _Mapping]] = ..., summary: _Optional[_Union[SearchSummary, _Mapping]] = ...) -> None: ...

class SearchMatch(_message.Message):
    __slots__ = ("path", "line", "column", "text", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    line: int
    column: int
    text: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., text: _Optional[str] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class SearchSummary(_message.Message):
    __slots__ = ("files_searched", "files_skipped", "matches", "truncated")
    FILES_SEARCHED_FIELD_NUMBER: _ClassVar[int]
    FILES_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    files_searched: int
    files_skipped: int
    matches: int
    truncated: bool
    def __init__(self, files_searched: _Optional[int] = ..., files_skipped: _Optional[int] = ..., matches: _Optional[int] = ..., truncated: _Optional[bool] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("path", "recursive", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECURSIVE_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    recursive: bool
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., recursive: _Optional[bool] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class WatchEvent(_message.Message):
    __slots__ = ("type", "path", "old_path", "directory", "raw_path", "raw_old_path")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    RAW_OLD_PATH_FIELD_NUMBER: _ClassVar[int]
    type: WatchEventType
    path: str
    old_path: str
    directory: bool
    raw_path: bytes
    raw_old_path: bytes
    def __init__(self, type: _Optional[_Union[WatchEventType, str]] = ..., path: _Optional[str] = ..., old_path: _Optional[str] = ..., directory: _Optional[bool] = ..., raw_path: _Optional[bytes] = ..., raw_old_path: _Optional[bytes] = ...) -> None: ...

class ChecksumRequest(_message.Message):
    __slots__ = ("path", "algorithm", "raw_path")
    PATH_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    RAW_PATH_FIELD_NUMBER: _ClassVar[int]
    path: str
    algorithm: str
    raw_path: bytes
    def __init__(self, path: _Optional[str] = ..., algorithm: _Optional[str] = ..., raw_path: _Optional[bytes] = ...) -> None: ...

class ChecksumResponse(_message.Message):
    __slots__ = ("digest", "algorithm", "size_bytes")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    digest: str
    algorithm: str
    size_bytes: int
    def __init__(self, digest: _Optional[str] = ..., algorithm: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...
