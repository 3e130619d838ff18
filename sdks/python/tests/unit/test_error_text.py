"""What a user reads of an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_sandbox_sdk import Sandbox, SandboxError
from agent_sandbox_sdk.options import RunOptions, assert_known


def test_an_error_as_text_says_what_to_do() -> None:
    error = SandboxError("warm-pool-not-found", "pool 'a' not found")
    assert str(error) == "pool 'a' not found. Create the pool, or name another one."
    assert error.message == "pool 'a' not found"


def test_a_message_that_says_itself_what_to_do_gets_no_second_advice() -> None:
    message = "sandbox a/b is suspended by its owner; resume it with agent-sandbox resume b"
    assert str(SandboxError("sandbox-held", message)) == message


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sandbox.create(imge="x"), "create: unknown option 'imge'; use 'image'"),  # type: ignore[call-arg]
        (lambda: Sandbox.open("a", work_dir="/x"), "open: unknown option 'work_dir'; use 'workdir'"),  # type: ignore[call-arg]
        (lambda: Sandbox.claim("p", label={}), "claim: unknown option 'label'; use 'labels'"),  # type: ignore[call-arg]
    ],
)
def test_an_unknown_option_is_refused_with_the_one_that_was_meant(call: Callable[[], object], message: str) -> None:
    with pytest.raises(SandboxError) as raised:
        call()
    assert (raised.value.code, raised.value.message) == ("invalid-argument", message)


def test_an_unknown_option_of_run_names_those_there_are() -> None:
    with pytest.raises(SandboxError) as raised:
        assert_known("run", {"cmd_timeout": 1}, RunOptions, "stdin", "check")
    assert raised.value.message == "run: unknown option 'cmd_timeout'; use 'command_timeout'"
    with pytest.raises(SandboxError) as raised:
        assert_known("run", {"zzz": 1}, RunOptions, "stdin", "check")
    assert raised.value.message.startswith("run: unknown option 'zzz'; use one of env, clear_env, cwd, ")


def test_an_engine_of_another_type_is_named_with_what_to_pass() -> None:
    with pytest.raises(SandboxError, match=r"engine: a dict is no Engine; use Engine\.find") as caught:
        Sandbox.create(engine={"data_dir": "/nowhere"})  # type: ignore[arg-type]
    assert caught.value.code == "invalid-argument"
