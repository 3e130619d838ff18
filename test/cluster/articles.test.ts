import { mkdtemp, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { article, articleText, kubectlFor, type Printed } from "../articles/kubectl.ts";
import { type Engine, type EngineName, openEngine } from "./engine.ts";

const engines: readonly EngineName[] = ["embedded", "cluster"];

for (const name of engines) {
  describe(`articles as printed, ${name}`, () => {
    let engine: Engine | undefined;
    let home = "";
    let kubectl: (words: string, input?: string) => Promise<Printed>;

    beforeAll(async () => {
      home = await mkdtemp(path.join(os.tmpdir(), "agent-sandbox-articles-"));
      engine = await openEngine({ name });
      kubectl = kubectlFor(engine.kubeconfig, home);
    }, 180_000);
    afterAll(async () => {
      await engine?.[Symbol.asyncDispose]();
      await rm(home, { recursive: true, force: true });
    }, 60_000);

    test(`${name}: a Sandbox becomes Ready, is shown, described and deleted`, async () => {
      expect(await kubectl(`apply -f ${article("sandbox.yaml")}`)).toMatchObject({
        code: 0,
        stdout: "sandbox.agents.x-k8s.io/my-sandbox created\n",
      });
      expect(await kubectl("wait --for=condition=Ready sandbox/my-sandbox --timeout=60s")).toMatchObject({ code: 0 });
      expect((await kubectl("get sandbox my-sandbox")).stdout).toMatch(/^NAME.*\nmy-sandbox /);
      expect((await kubectl("describe sandbox my-sandbox")).stdout).toContain("SandboxReady");
      expect(await kubectl("delete sandbox my-sandbox")).toMatchObject({ code: 0 });
      expect((await kubectl("get sandbox")).stdout).not.toContain("my-sandbox");
    });

    test(`${name}: a Sandbox whose runtime class is not there says so in its Ready condition`, async () => {
      expect(await kubectl(`apply -f ${article("kata.yaml")}`)).toMatchObject({ code: 0 });
      const ready = '{.status.conditions[?(@.type=="Ready")]';
      const reason = `jsonpath=${ready}.reason}=InvalidConfiguration`;
      const waited = await kubectl(`wait --for=${reason} sandbox/kata-ai-sandbox --timeout=30s`);
      expect(waited, waited.stderr).toMatchObject({ code: 0 });
      const message = (await kubectl(`get sandbox kata-ai-sandbox -o jsonpath=${ready}.message}`)).stdout;
      expect(message).toContain('RuntimeClass "kata-qemu-nvidia-gpu" does not exist');
      expect(await kubectl("delete sandbox kata-ai-sandbox")).toMatchObject({ code: 0 });
    });

    test(`${name}: template and claim of one file: the warning names the real kinds, and the claim starts cold`, async () => {
      const applied = await kubectl(`apply -f ${article("template-and-claim.yaml")}`);
      expect(applied).toMatchObject({
        code: 0,
        stdout: "sandboxtemplate.agents.x-k8s.io/python-agent created\nsandboxclaim.agents.x-k8s.io/my-claim created\n",
      });
      for (const kind of ["SandboxTemplate", "SandboxClaim"])
        expect(applied.stderr).toContain(
          `Warning: agents.x-k8s.io/v1alpha1 ${kind} is deprecated; use extensions.agents.x-k8s.io/v1beta1 ${kind} instead`,
        );
      const waited = await kubectl(`wait --for=condition=Ready -f ${article("template-and-claim.yaml")} --timeout=60s`);
      expect(waited, waited.stderr).toMatchObject({ code: 0 });
      const path = "jsonpath={.metadata.ownerReferences[0].kind}/{.spec.warmPoolRef.name}/{.status.sandbox.name}";
      expect((await kubectl(`get sandboxclaim my-claim -o ${path}`)).stdout).toBe(
        "SandboxClaim/shadow-pool-python-agent/my-claim",
      );
    });

    test(`${name}: words without a group mean the real kinds, and the printed name means the printed one`, async () => {
      for (const word of [
        "sandboxclaim",
        "sandboxclaims",
        "SandboxClaim",
        "sandboxtemplates",
        "sandboxwarmpools",
        "swp",
      ]) {
        const { stdout } = await kubectl(`get ${word} -o jsonpath={.items[0].apiVersion}`);
        expect(`${word} ${stdout}`).toBe(`${word} extensions.agents.x-k8s.io/v1beta1`);
      }
      const printed = await kubectl("get sandboxclaim.agents.x-k8s.io/my-claim");
      expect(printed.stdout).toMatch(/^NAME +READY +SANDBOX +REASON +AGE\nmy-claim +True +my-claim +/);
    });

    test(`${name}: a pool without a name is refused by kubectl itself; with one, or a generated one, it fills`, async () => {
      const asPrinted = await kubectl(`apply -f ${article("pool.yaml")}`);
      expect(asPrinted.code).toBe(1);
      expect(asPrinted.stderr).toContain("resource name may not be empty");
      const generated = await articleText("pool.yaml", { "spec:": "metadata: {generateName: python-agent-}\nspec:" });
      expect((await kubectl("create -f -", generated)).stdout).toMatch(
        /^sandboxwarmpool\.agents\.x-k8s\.io\/python-agent-\w+ created\n$/,
      );
      const named = await articleText("pool.yaml", { "spec:": "metadata: {name: python-agent}\nspec:" });
      expect(await kubectl("apply -f -", named)).toMatchObject({ code: 0 });
      expect(await kubectl("wait --for=condition=Ready -f - --timeout=60s", named)).toMatchObject({ code: 0 });
      const path = "jsonpath={.spec.replicas}/{.status.readyReplicas}";
      expect((await kubectl(`get sandboxwarmpool python-agent -o ${path}`)).stdout).toBe("3/3");
    });

    test(`${name}: after the pool, the printed claim takes a warm one`, async () => {
      const next = await articleText("template-and-claim.yaml", { "my-claim": "next-claim" });
      expect(await kubectl("apply -f -", next)).toMatchObject({ code: 0 });
      const waited = await kubectl("wait --for=condition=Ready -f - --timeout=60s", next);
      expect(waited, waited.stderr).toMatchObject({ code: 0 });
      const sandbox = (await kubectl("get sandboxclaim next-claim -o jsonpath={.status.sandbox.name}")).stdout;
      expect(sandbox).toMatch(/^python-agent-/);
      const label = "jsonpath={.metadata.labels.agents\\.x-k8s\\.io/launch-type}";
      expect((await kubectl(`get sandbox ${sandbox} -o ${label}`)).stdout).toBe("warm");
    });

    test(`${name}: a quota on the real kind holds for what is made from a printed one, which says so`, async () => {
      expect(await kubectl("create namespace tenant")).toMatchObject({ code: 0 });
      const hard = "count/sandboxclaims.extensions.agents.x-k8s.io=0";
      expect(await kubectl(`create quota none -n tenant --hard=${hard}`)).toMatchObject({ code: 0 });
      // A quota counts once its controller has seen it.
      const counted = "jsonpath={.status.hard}";
      await kubectl(`wait --for=${counted} quota/none -n tenant --timeout=60s`);
      expect(await kubectl(`apply -n tenant -f ${article("template-and-claim.yaml")}`)).toMatchObject({ code: 0 });
      const said = 'jsonpath={.status.conditions[?(@.type=="Ready")].reason}=Refused';
      const refused = await kubectl(`wait --for=${said} sandboxclaim.agents.x-k8s.io/my-claim -n tenant --timeout=30s`);
      expect(refused, refused.stderr).toMatchObject({ code: 0 });
      expect((await kubectl("get sandboxclaims -n tenant")).stdout).toBe("");
    });

    test(`${name}: the end of either is the end of both`, async () => {
      expect(await kubectl(`delete -f ${article("template-and-claim.yaml")} --wait`)).toMatchObject({ code: 0 });
      expect(await kubectl("wait --for=delete sandboxclaim/my-claim sandbox/my-claim --timeout=60s")).toMatchObject({
        code: 0,
      });
      expect(await kubectl("delete sandboxclaim next-claim")).toMatchObject({ code: 0 });
      const gone = await kubectl("wait --for=delete sandboxclaim.agents.x-k8s.io/next-claim --timeout=60s");
      expect(gone, gone.stderr).toMatchObject({ code: 0 });
    });
  });
}
