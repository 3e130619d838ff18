import { beforeEach } from "vitest";
import { FakeHost } from "../../packages/server/src/node/host/fake-host.ts";
import { testHostContract } from "./contract.ts";

let fake: FakeHost;
beforeEach(() => {
  fake = new FakeHost();
});

testHostContract("fake host", "runsc", () => ({
  host: fake,
  putBlob: async (path, bytes) => void fake.blobs.set(path, bytes),
  readOutput: async (path) => fake.outputOf(path),
}));
