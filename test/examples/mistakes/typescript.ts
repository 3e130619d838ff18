// The mistakes of mistakes.ts, made with the TypeScript SDK: `node typescript.ts <mistake>` ends with that error, uncaught.
import { Sandbox } from "@agent-sandbox/sdk";

const mistakes: Readonly<Record<string, () => Promise<unknown>>> = {
  "wrong-pool": () => Sandbox.claim("gpu-pool"),
  "bad-image": () => Sandbox.create({ image: "127.0.0.1:5999/no-such-image:1" }),
  "missing-command": async () => (await Sandbox.get("dev")).run(["pythn", "main.py"]),
  "missing-directory": async () => (await Sandbox.get("dev")).run("ls", { cwd: "/srv/app" }),
  "not-executable": async () => (await Sandbox.get("dev")).run(["/etc/hostname"]),
  "failing-command": async () => (await Sandbox.get("dev")).run("cat /no/such/file", { check: true }),
  timeout: async () => (await Sandbox.get("dev")).run("sleep 60", { commandTimeoutMs: 1000 }),
  "out-of-memory": async () => {
    await using box = await Sandbox.create({ memory: "96Mi" });
    await box.run("tail /dev/zero", { check: true });
  },
  "no-such-sandbox": () => Sandbox.get("dve"),
  "no-engine": () => Sandbox.create(),
  "no-permission": () => Sandbox.create(),
  "disk-full": async () => (await Sandbox.get("dev")).files.write("/small/big", new Uint8Array(64 * 2 ** 20)),
  held: async () => (await Sandbox.get("held")).run("true"),
};

await mistakes[process.argv[2] ?? ""]?.();
