import { expect, test } from "vitest";
import { FlagError } from "../controllers/process/go-flags.ts";
import { labelsOf, nodeFlags, nodeUsage, parseNodeFlags, taintsOf } from "./node-flags.ts";

test("parseNodeFlags: defaults are a kubelet's", () => {
  expect(parseNodeFlags([])).toMatchObject({ port: 10_250, "max-pods": 110, "cluster-domain": "cluster.local" });
});

test.each([
  ["--node-ip=::1", "not an IPv4 address"],
  ["--port=70000", "not a port"],
  ["--max-pods=0", "--max-pods"],
  ["--tls-cert-file=a", "belong together"],
  ["--pod-cidr=10.1.2.0/24", "/16"],
  ["--node-labels=a", "key=value"],
  ["--register-with-taints=a=b:Never", "key=value:effect"],
  ["--allow-host-path=srv", "not absolute"],
  ["--archive=srv", "not an absolute path"],
  ["--archive-credentials=/c", "name one with --archive"],
  ["--image-gc-high-threshold=101", "between 0 and 100"],
  ["--image-gc-low-threshold=85", "less than"],
  ["--minimum-image-ttl-duration=-1s", "not a duration"],
  ["surplus", "unexpected argument"],
  ["--unknown", "not defined"],
])("parseNodeFlags: refuses %s", (flag, message) => {
  expect(() => parseNodeFlags([flag])).toThrow(FlagError);
  expect(() => parseNodeFlags([flag])).toThrow(message);
});

test("nodeUsage: names every flag with its default", () => {
  expect(nodeUsage()).toContain("--port int\n        Port of the kubelet endpoint; 0: any. (default 10250)");
  for (const name of Object.keys(nodeFlags)) expect(nodeUsage()).toContain(`--${name}`);
});

test("taintsOf: reads taints with and without a value", () => {
  expect(taintsOf("a=b:NoSchedule,c:NoExecute")).toEqual([
    { key: "a", value: "b", effect: "NoSchedule" },
    { key: "c", effect: "NoExecute" },
  ]);
  expect(labelsOf("tier=gold,empty=")).toEqual({ tier: "gold", empty: "" });
});
