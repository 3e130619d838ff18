// Writes docs/troubleshooting.md: what kubectl prints about healthy and broken objects, on a real API server.
//
//   node test/cluster/record-troubleshooting.ts
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { stringify } from "yaml";
import { aClaim, aPool, aTemplate } from "./claim-objects.ts";
import { openEngine } from "./engine.ts";
import { missingImage } from "./fake-kubelet.ts";
import { programPath } from "./programs.ts";

const target = path.resolve(import.meta.dirname, "../../docs/troubleshooting.md");
await using engine = await openEngine({ name: "cluster" });
const sandbox = (name: string, container: object): object => ({
  apiVersion: "agents.x-k8s.io/v1beta1",
  kind: "Sandbox",
  metadata: { name },
  spec: { podTemplate: { spec: { containers: [{ name: "main", image: "example.com/app:1", ...container }] } } },
});

function kubectl(...args: string[]): string {
  const options = { encoding: "utf8" as const, env: { ...process.env, KUBECONFIG: engine.kubeconfig } };
  return execFileSync(programPath("kubectl"), args, options).replaceAll(/ +$/gm, "");
}

function apply(object: object): void {
  const options = { input: stringify(object), env: { ...process.env, KUBECONFIG: engine.kubeconfig } };
  execFileSync(programPath("kubectl"), ["apply", "-f", "-"], options);
}

function section(title: string, explanation: string, ...commands: string[][]): string {
  const outputs = commands.map(
    (args) => `\`\`\`console\n$ kubectl ${args.join(" ")}\n${kubectl(...args).trimEnd()}\n\`\`\``,
  );
  return [`### ${title}`, explanation, ...outputs].join("\n\n");
}

apply(aTemplate("python"));
apply(aPool("python-pool", "python", 2));
apply(aPool("lost-pool", "no-such-template", 2));
apply(sandbox("healthy", {}));
apply(sandbox("too-large", { resources: { requests: { cpu: "100000" } } }));
apply(sandbox("no-image", { image: missingImage }));
await new Promise((resolve) => setTimeout(resolve, 6_000));
apply(aClaim("claim", "python-pool"));
apply(aClaim("lost-claim", "no-such-pool"));
apply(aClaim("bad-claim", "python-pool", { additionalPodMetadata: { labels: { "kubernetes.io/team": "blue" } } }));
await new Promise((resolve) => setTimeout(resolve, 6_000));

const parts = [
  "# Troubleshooting",
  "What keeps an engine from starting is said before anything is made, and `agent-sandbox doctor` lists it; the sentences are in [errors.md](errors.md). For objects, `kubectl describe` says what is wrong: the Ready condition carries reason and message, the events below it tell the story. All output here is real; `node test/cluster/record-troubleshooting.ts` writes it anew.",
  "## Healthy",
  section("Everything at a glance", "READY says it all; the last column is the age.", [
    "get",
    "sandboxes,sandboxtemplates,sandboxwarmpools,sandboxclaims",
  ]),
  section("A Sandbox", "Ready is True and the address is in the status.", ["describe", "sandbox", "healthy"]),
  section("A template", "Its condition says that sandboxes can be made from it.", [
    "describe",
    "sandboxtemplate",
    "python",
  ]),
  section("A pool", "As many members ready as wanted.", ["describe", "sandboxwarmpool", "python-pool"]),
  section("A claim", "The Sandbox it got is in the status.", ["describe", "sandboxclaim", "claim"]),
  "## Broken",
  section(
    "A pool whose template is missing",
    "Make the template, or correct `sandboxTemplateRef`; the pool fills by itself then.",
    ["get", "sandboxwarmpool", "lost-pool"],
    ["describe", "sandboxwarmpool", "lost-pool"],
  ),
  section(
    "A claim on a pool that is missing",
    "Make the pool, or correct `warmPoolRef`.",
    ["get", "sandboxclaim", "lost-claim"],
    ["describe", "sandboxclaim", "lost-claim"],
  ),
  section(
    "A Sandbox that fits on no node",
    "Ask for less, or add a node; the Pod's events name the resource.",
    ["get", "sandbox", "too-large"],
    ["describe", "sandbox", "too-large"],
    ["get", "pod", "too-large"],
  ),
  section(
    "A Sandbox whose image cannot be pulled",
    "Correct the image or the pull secret.",
    ["get", "sandbox", "no-image"],
    ["describe", "sandbox", "no-image"],
    ["get", "pod", "no-image"],
  ),
  section(
    "A claim with metadata of a domain that is not allowed",
    "Use a domain of `--allowed-label-domains`; such a claim is not tried again until it is changed.",
    ["get", "sandboxclaim", "bad-claim"],
    ["describe", "sandboxclaim", "bad-claim"],
  ),
];
writeFileSync(target, `${parts.join("\n\n")}\n`);
process.stdout.write(`${target}\n`);
