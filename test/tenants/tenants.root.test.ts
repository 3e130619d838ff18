import { afterAll, beforeAll, expect, test } from "vitest";
import { clusterForms } from "./cluster-forms.ts";
import { type Form, routerForms } from "./router-forms.ts";
import { systemNamespace, TenantWorld } from "./tenant-world.ts";

const names = ["red", "blue"] as const;
const forms: Readonly<Record<string, Form>> = { ...routerForms, ...clusterForms };
let world: TenantWorld;

beforeAll(async () => {
  world = await TenantWorld.open({ red: "sandbox-user", blue: "admin" });
});

afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

const matrix = Object.keys(forms).flatMap((form) =>
  names.flatMap((who) => names.map((whose) => ({ form, who, whose }))),
);

test.concurrent.each(matrix)("tenants: by $form, $who asks for the sandbox of $whose", async ({ form, who, whose }) => {
  const seen = await (forms[form] as Form)(world, world.tenant(who), world.tenant(whose));
  if (who === whose) expect(seen).toBe(whose);
  else expect(seen).toMatch(/^refused: (401|403|grpc 7|grpc 16|forbidden|network|own sandbox instead)$/);
});

interface Right {
  readonly verb: string;
  readonly group?: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly name?: string;
  readonly isGiven: boolean;
}

/** What the documented Role gives in the router's namespace, and a sample of what it does not. */
const rights: readonly Right[] = [
  { verb: "get", resource: "services", name: "sandbox-router-svc", isGiven: true },
  { verb: "get", resource: "services", name: "another", isGiven: false },
  { verb: "create", resource: "pods", subresource: "portforward", name: "sandbox-router", isGiven: true },
  { verb: "create", resource: "pods", subresource: "portforward", name: "another", isGiven: false },
  { verb: "create", resource: "pods", subresource: "exec", name: "sandbox-router", isGiven: false },
  { verb: "list", resource: "pods", isGiven: true },
  { verb: "create", resource: "pods", isGiven: false },
  { verb: "get", resource: "secrets", isGiven: false },
  { verb: "create", group: "extensions.agents.x-k8s.io", resource: "sandboxclaims", isGiven: false },
  { verb: "create", group: "agents.x-k8s.io", resource: "sandboxes", subresource: "connect", isGiven: false },
];

test.each(rights)(
  "tenants: in the router's namespace, $verb $resource $subresource $name is given: $isGiven",
  async ({ isGiven, ...attributes }) => {
    const answer = await world.engine.client.raw<{ status: { allowed: boolean } }>({
      method: "POST",
      path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
      body: {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SubjectAccessReview",
        spec: {
          user: "system:serviceaccount:red:user",
          groups: ["system:serviceaccounts", "system:serviceaccounts:red", "system:authenticated"],
          resourceAttributes: { ...attributes, namespace: systemNamespace },
        },
      },
    });
    expect(answer.status.allowed).toBe(isGiven);
  },
);
