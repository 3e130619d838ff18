import { expect, test } from "vitest";
import { Sandbox } from "../sandbox.ts";
import { SandboxConnection } from "../sandbox-connection.ts";

// Options as a program without type checks gives them.
const misspelt = (text: string): object => JSON.parse(text) as object;

test.each([
  ["create", () => Sandbox.create(misspelt('{"imge":"x"}')), "create: unknown option 'imge'; use 'image'"],
  ["open", () => Sandbox.open("a", misspelt('{"ttlMS":1}')), "open: unknown option 'ttlMS'; use 'ttlMs'"],
  ["claim", () => Sandbox.claim("p", misspelt('{"label":{}}')), "claim: unknown option 'label'; use 'labels'"],
])(
  "unknown option of %s: refused before anything is asked, with the one that was meant",
  async (_call, act, message) => {
    await expect(act()).rejects.toMatchObject({ name: "SandboxError", code: "invalid-argument", message });
  },
);

test("unknown option of run, spawn and pty: refused before the sandbox is asked", async () => {
  const plane = {
    send: () => Promise.reject(new Error("the sandbox was asked")),
    openSocket: () => Promise.reject(new Error("the sandbox was asked")),
    close: () => Promise.resolve(),
  };
  const box = new SandboxConnection({ namespace: "n", name: "a", plane: plane as never });
  const refusal = (message: string) => ({ code: "invalid-argument", message });
  await expect(box.run("true", misspelt('{"cmd":"/"}'))).rejects.toMatchObject(
    refusal("run: unknown option 'cmd'; use 'cwd'"),
  );
  await expect(box.spawn("true", misspelt('{"onStdout":1}'))).rejects.toThrow(
    "spawn: unknown option 'onStdout'; use one of env, ",
  );
  await expect(box.pty(undefined, misspelt('{"sise":1}'))).rejects.toMatchObject(
    refusal("pty: unknown option 'sise'; use 'size'"),
  );
});
