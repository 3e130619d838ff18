import { expect, test } from "vitest";
import { type EngineConfig, withAddresses } from "./engine-config.ts";

const any = { host: "127.0.0.1", port: 0 };
const config = { apiListen: any, routerListen: any, metricsListen: any, kubeletListen: any } as EngineConfig;

test("withAddresses: a role that is started again takes the port it was given, at the address that was decided before", () => {
  const facts = { apiAddress: "127.0.0.1:40001", kubeletAddress: "[::1]:40002", routerAddress: "192.0.2.1:40003" };
  expect(withAddresses(config, facts)).toEqual({
    ...config,
    apiListen: { host: "127.0.0.1", port: 40_001 },
    kubeletListen: { host: "127.0.0.1", port: 40_002 },
    routerListen: { host: "127.0.0.1", port: 40_003 },
  });
});

test("withAddresses: a role that has said nothing keeps what it was told", () => {
  expect(withAddresses(config, {})).toEqual(config);
});
