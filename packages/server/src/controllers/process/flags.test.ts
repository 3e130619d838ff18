import { describe, expect, test } from "vitest";
import { controllerConfig, parseControllerFlags, parseLabelDomains } from "./flags.ts";
import { FlagError } from "./go-flags.ts";

describe("parseControllerFlags", () => {
  test("parseControllerFlags: Go's spellings", () => {
    const { values } = parseControllerFlags([
      "-extensions",
      "--leader-elect=false",
      "--cluster-domain",
      "corp",
      "--sandbox-write-behind-window=1m30s",
      "-webhook-port=1",
    ]);
    expect(values).toMatchObject({
      extensions: true,
      "leader-elect": false,
      "cluster-domain": "corp",
      "sandbox-write-behind-window": 90_000,
      "webhook-port": 1,
    });
  });
  test("parseControllerFlags: the reference's defaults", () => {
    const { values, errors, warnings } = parseControllerFlags([]);
    expect([errors, warnings]).toEqual([[], []]);
    expect(values).toMatchObject({
      "metrics-bind-address": ":8080",
      "kube-api-qps": -1,
      "sandbox-concurrent-workers": 100,
      "sandbox-warm-pool-readiness-grace-period": 300_000,
    });
  });
  test.each([["--unknown"], ["--webhook-port=x"], ["--leader-elect=maybe"], ["--cluster-domain"]])(
    "parseControllerFlags: %s is refused",
    (argument) => {
      expect(() => parseControllerFlags([argument])).toThrow(FlagError);
    },
  );
  test.each([
    ["--kube-api-burst=0"],
    ["--api-connections=0"],
    ["--sandbox-concurrent-workers=0"],
    ["--sandbox-claim-concurrent-workers=-1"],
    ["--sandbox-warm-pool-max-batch-size=0"],
    ["--sandbox-warm-pool-max-refill-rate=NaN"],
    ["--sandbox-warm-pool-max-refill-rate=+Inf"],
    ["--sandbox-warm-pool-max-refill-rate=-1"],
    ["--sandbox-warm-pool-readiness-grace-period=0s"],
    ["--sandbox-write-behind-window=-1s"],
    ["--webhook-cert-name="],
    ["--zap-log-level=loud"],
    ["--zap-encoder=xml"],
    ["--zap-stacktrace-level=never"],
    ["--zap-time-encoding=sundial"],
    ["stray"],
  ])("parseControllerFlags: %s fails validation", (argument) => {
    expect(parseControllerFlags([argument]).errors).toHaveLength(1);
  });
  test("parseControllerFlags: too many workers and a small burst are warned of", () => {
    expect(parseControllerFlags(["--sandbox-concurrent-workers=2000", "--kube-api-qps=5"]).warnings).toHaveLength(2);
    expect(parseControllerFlags(["--sandbox-template-concurrent-workers=0"]).errors).toEqual([]);
  });
  test("controllerConfig: flags become settings, domains fall back", () => {
    const { values } = parseControllerFlags(["--disable-claim-events", "--sandbox-warm-pool-replenish-delay=2s"]);
    expect(controllerConfig(values, [])).toMatchObject({
      claimEvents: false,
      replenishDelayMs: 2_000,
      allowedLabelDomains: ["sandbox.users.io"],
    });
    expect(parseLabelDomains(" A.io,\nb.io ,")).toEqual(["a.io", "b.io"]);
  });
  test.each(["kubernetes.io", "x.kubernetes.io", "io", "k8s.io", "extensions.agents.x-k8s.io", "agent-sandbox.dev"])(
    "parseLabelDomains: %s would open a domain of the system and is refused",
    (domain) => {
      expect(() => parseLabelDomains(`team.example,${domain}`)).toThrow(`allowed label domain "${domain}"`);
    },
  );
  test("controllerConfig: the router's namespace is the operator's to say", () => {
    const { values } = parseControllerFlags(["--router-namespace=edge"]);
    expect(controllerConfig(values, []).routerNamespace).toBe("edge");
  });
});
