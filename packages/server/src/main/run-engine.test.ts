import { expect, test } from "vitest";
import { argsLike } from "./run-engine.ts";

test("argsLike: the next version is told the ports that the kernel chose, and everything else as it was", () => {
  const urls = {
    apiUrl: "https://127.0.0.1:41001",
    routerUrl: "http://[::1]:41002",
    metricsUrl: "https://127.0.0.1:41003",
  };
  const args = ["up", "--listen", "127.0.0.1:0", "--router-listen=[::1]:0", "--metrics-listen", "127.0.0.1:7090"];
  expect(argsLike([...args, "--log-level", "debug"], urls)).toEqual([
    "up",
    "--listen",
    "127.0.0.1:41001",
    "--router-listen=[::1]:41002",
    "--metrics-listen",
    "127.0.0.1:7090",
    "--log-level",
    "debug",
  ]);
});
