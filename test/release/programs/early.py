from agentic_sandbox_client import SandboxClient

client = SandboxClient()
sandbox = client.create_sandbox(name="my-sandbox", image="host")
result = sandbox.execute("echo hello from $(uname -s)")
print(result.stdout, end="")
sandbox.delete()
