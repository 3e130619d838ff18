"""Modules that are loaded when something of them is first used: an import must not cost what only calls need.

An event loop with TLS takes longer to load than the rest of the SDK together. The modules that a program imports the
SDK through take these instead of the real ones, and are without `typing` themselves: type checkers know the name
TYPE_CHECKING, wherever it comes from.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio as asyncio
    import codecs as codecs
    import contextlib as contextlib
    import datetime as datetime
    import secrets as secrets

    from agent_sandbox_sdk import _async_files as _async_files
    from agent_sandbox_sdk import _async_process as _async_process
    from agent_sandbox_sdk import _connect as _connect
    from agent_sandbox_sdk import _container_end as _container_end
    from agent_sandbox_sdk import _daemon_status as _daemon_status
    from agent_sandbox_sdk import _error_codes as _error_codes
    from agent_sandbox_sdk import _http_answer as _http_answer
    from agent_sandbox_sdk import _kube as _kube
    from agent_sandbox_sdk import _lifecycle as _lifecycle
    from agent_sandbox_sdk import _objects as _objects
    from agent_sandbox_sdk import _opening as _opening
    from agent_sandbox_sdk import _phase as _phase
    from agent_sandbox_sdk import _plane as _plane
    from agent_sandbox_sdk import _portal as _portal
    from agent_sandbox_sdk import _process_events as _process_events
    from agent_sandbox_sdk import _repeating as _repeating
    from agent_sandbox_sdk import _services as _services
    from agent_sandbox_sdk import _snapshots as _snapshots
    from agent_sandbox_sdk import _verdict as _verdict
    from agent_sandbox_sdk import _wait as _wait
    from agent_sandbox_sdk import _within as _within
    from agent_sandbox_sdk import options as options
    from agent_sandbox_sdk import result as result
    from agent_sandbox_sdk import sandbox_info as sandbox_info
    from agent_sandbox_sdk import snapshot_info as snapshot_info
else:

    class _Deferred:
        """Stands for a module; every look at it goes to the real one."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._module = None

        def __getattr__(self, attribute: str) -> object:
            if self._module is None:
                from importlib import import_module

                self._module = import_module(self._name)
            return getattr(self._module, attribute)

    _LIBRARY = ("asyncio", "codecs", "contextlib", "datetime", "secrets")

    def __getattr__(name: str) -> _Deferred:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Deferred(name if name in _LIBRARY else f"{__package__}.{name}")
