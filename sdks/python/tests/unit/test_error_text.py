"""What a user reads of an error."""

from __future__ import annotations

from agent_sandbox import SandboxError


def test_an_error_as_text_says_what_to_do() -> None:
    error = SandboxError("warm-pool-not-found", "pool 'a' not found")
    assert str(error) == "pool 'a' not found. Create the pool, or name another one."
    assert error.message == "pool 'a' not found"


def test_a_message_that_says_itself_what_to_do_gets_no_second_advice() -> None:
    message = "sandbox a/b is suspended by its owner; resume it with agent-sandbox resume b"
    assert str(SandboxError("sandbox-held", message)) == message
