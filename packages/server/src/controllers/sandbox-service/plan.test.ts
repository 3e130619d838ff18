import type { Sandbox, Service } from "@agent-sandbox/api";
import { describe, expect, test } from "vitest";
import { aSandbox, aService, ownedBy } from "../testing/builders.ts";
import { planService } from "./plan.ts";
import { servicePortsOf } from "./service-ports.ts";

const withService = (service: boolean | undefined, ports: { containerPort: number }[] = []): Sandbox =>
  aSandbox({
    spec: {
      ...(service === undefined ? {} : { service }),
      podTemplate: { spec: { containers: [{ name: "c", ports }] } },
    },
  });
const unowned = (spec?: Service["spec"]): Service =>
  aService({ metadata: { ownerReferences: [] }, ...(spec === undefined ? {} : { spec }) });
const foreign = aService({ metadata: { ownerReferences: [ownedBy("Job", "j")] } });

describe("planService", () => {
  const rows: [string, boolean | undefined, Service | undefined, string | undefined, string][] = [
    ["true, none", true, undefined, "create-service", "set"],
    ["true, owned", true, aService(), undefined, "set"],
    ["true, unowned", true, unowned(), "adopt-service", "set"],
    ["unset, none", undefined, undefined, undefined, "clear"],
    ["unset, owned", undefined, aService(), undefined, "set"],
    ["unset, unowned", undefined, unowned(), undefined, "clear"],
    ["unset, another's", undefined, foreign, undefined, "clear"],
    ["false, none", false, undefined, undefined, "clear"],
    ["false, owned", false, aService(), "delete-service", "clear"],
    ["false, unowned", false, unowned(), undefined, "clear"],
    ["false, another's", false, foreign, undefined, "clear"],
  ];
  test.each(rows)("planService: V4 %s", (_title, wanted, service, action, status) => {
    const plan = planService(withService(wanted), service);
    expect(plan.action?.do).toBe(action);
    expect(plan.status).toBe(status);
    expect(plan.failure).toBeUndefined();
  });
  test("planService: wanted but another's is an error that leaves it alone", () => {
    const plan = planService(withService(true), foreign);
    expect(plan.failure).toBe('service "my-sandbox" is owned by Job/j (UID: uid-j), not by sandbox "my-sandbox"');
    expect(plan.action).toBeUndefined();
  });
  test("planService: V3 a cluster address cannot be adopted", () => {
    expect(planService(withService(true), unowned({ clusterIP: "10.0.0.7" })).failure).toBe(
      'cannot adopt service "my-sandbox": ClusterIP is "10.0.0.7" (expected "None", field is immutable)',
    );
  });
  test("planService: V3 an unlabelled unowned one is refused", () => {
    const bare = aService({ metadata: { ownerReferences: [], labels: {} } });
    expect(planService(withService(true), bare).failure).toContain('cannot adopt unowned service "my-sandbox"');
  });
  test("planService: V3 adoption overwrites selector and ports", () => {
    const spec = { clusterIP: "None", selector: { app: "x" }, ports: [{ port: 1 }] };
    const { action } = planService(withService(true), unowned(spec));
    const adopted = action?.do === "adopt-service" ? action.service.spec : undefined;
    expect(adopted).toEqual({ clusterIP: "None", selector: { "agents.x-k8s.io/sandbox-name-hash": "374de8f5" } });
  });
  test("planService: V2 repair restores label, selector and ports and keeps what others added", () => {
    const broken = aService({
      metadata: { labels: { mine: "1" } },
      spec: { clusterIP: "None", selector: { app: "x" }, ports: [] },
    });
    const { action } = planService(withService(true, [{ containerPort: 80 }]), broken);
    expect(action).toEqual({
      do: "patch-service",
      name: "my-sandbox",
      body: {
        metadata: { labels: { "agents.x-k8s.io/sandbox-name-hash": "374de8f5" } },
        spec: {
          selector: { app: null, "agents.x-k8s.io/sandbox-name-hash": "374de8f5" },
          ports: [{ name: "p-80-tcp", protocol: "TCP", port: 80, targetPort: 80 }],
        },
      },
    });
  });
  test("planService: V2 equal controlled fields need no write, and unset leaves ports alone", () => {
    const selector = { "agents.x-k8s.io/sandbox-name-hash": "374de8f5" };
    const ports = [{ name: "p-80-tcp", protocol: "TCP", port: 80, targetPort: 80, appProtocol: "http" }];
    expect(
      planService(
        withService(true, [{ containerPort: 80 }]),
        aService({ spec: { clusterIP: "None", selector, ports } }),
      ).action,
    ).toBeUndefined();
    expect(
      planService(
        withService(undefined, [{ containerPort: 81 }]),
        aService({ spec: { clusterIP: "None", selector, ports } }),
      ).action,
    ).toBeUndefined();
  });
});

describe("servicePortsOf", () => {
  test("servicePortsOf: V1 sorted, once per pair, port 0 skipped, plain init containers ignored", () => {
    const ports = servicePortsOf({
      containers: [
        { name: "a", ports: [{ containerPort: 9000 }, { containerPort: 80, name: "web" }, { containerPort: 0 }] },
        {
          name: "b",
          ports: [
            { containerPort: 80, name: "other" },
            { containerPort: 80, protocol: "UDP" },
          ],
        },
      ],
      initContainers: [
        { name: "side", restartPolicy: "Always", ports: [{ containerPort: 7000 }] },
        { name: "init", ports: [{ containerPort: 1 }] },
      ],
    });
    expect(ports.map(({ name, port, protocol }) => [name, port, protocol])).toEqual([
      ["web", 80, "TCP"],
      ["p-80-udp", 80, "UDP"],
      ["p-7000-tcp", 7000, "TCP"],
      ["p-9000-tcp", 9000, "TCP"],
    ]);
  });
  test("servicePortsOf: V1 a generated name dodges an explicit one", () => {
    const ports = servicePortsOf({
      containers: [{ name: "a", ports: [{ containerPort: 80 }, { containerPort: 90, name: "p-80-tcp" }] }],
    });
    expect(ports.map(({ name }) => name)).toEqual(["p-80-tcp-2", "p-80-tcp"]);
  });
});
