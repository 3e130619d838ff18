import { ignore, type Pod, pods, type ServiceAccount, serviceAccounts } from "@agent-sandbox/api";
import { createClient, httpTransport } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { FakeClock } from "../../packages/kube/src/testing/fake-clock.ts";
import { TokenCache } from "../../packages/server/src/node/volumes/token-cache.ts";
import { openEmbeddedTarget } from "../conformance/embedded-target.ts";

const minute = 60_000;

test("TokenCache: a token is renewed when four fifths of its life are over, and not before", async () => {
  await using target = await openEmbeddedTarget();
  const client = createClient(httpTransport(target.admin));
  const account: ServiceAccount = {
    apiVersion: "v1",
    kind: "ServiceAccount",
    metadata: { name: "default", namespace: "default" },
  };
  await client.create(serviceAccounts, account).catch(ignore("AlreadyExists"));
  const clock = new FakeClock(Date.now());
  const tokens = new TokenCache({ client, clock });
  const source = { serviceAccountToken: { path: "token", expirationSeconds: 600 } };
  const pod: Pod = await client.create(pods, {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: "bearer", namespace: "default" },
    spec: {
      volumes: [{ name: "token", projected: { sources: [source] } }],
      containers: [{ name: "main", image: "host" }],
    },
  });
  const wish = { expirationSeconds: 600 };
  const at = async (): Promise<string | undefined> => {
    await tokens.ensure(pod, new AbortController().signal);
    return tokens.get(pod, wish);
  };
  const first = await at();
  await clock.advance(7 * minute);
  expect(await at()).toBe(first);
  await clock.advance(2 * minute);
  const second = await at();
  expect([first === undefined, second === first]).toEqual([false, false]);
  await client.transport.close();
});
