import { afterAll, beforeAll } from "vitest";
import { testHostContract } from "./contract.ts";
import { RealHost } from "./real-host.ts";

let real: RealHost;
beforeAll(async () => {
  real = await RealHost.open();
});
afterAll(async () => {
  await real[Symbol.asyncDispose]();
});

testHostContract("host with runsc", "runsc", () => real);
