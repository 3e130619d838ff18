from agent_sandbox_sdk import Sandbox

with Sandbox.create() as box:
    print(box.run("echo hello from $(uname -s)").stdout, end="")
