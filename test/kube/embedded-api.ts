import { type Client, type Clock, createClient, type Transport } from "@agent-sandbox/kube";
import { ApiServer } from "../../packages/server/src/apiserver/api-server.ts";
import { ownCrds } from "../../packages/server/src/apiserver/testing/test-server.ts";
import { openStore } from "../../packages/server/src/store/sqlite-store.ts";
import type { Store } from "../../packages/server/src/store/store.ts";
import { silentLogger } from "../../packages/server/src/telemetry/logger.ts";

/** The real API server over a store in memory, reached by function calls. */
export interface EmbeddedApi extends AsyncDisposable {
  readonly store: Store;
  readonly transport: Transport;
  readonly client: Client;
  /** Has it serve our own kinds too. */
  serveOwnKinds(): Promise<void>;
}

/** Opens one in which everybody may do everything. */
export function openEmbeddedApi(clock: Clock): EmbeddedApi {
  const store = openStore({ path: ":memory:", clock });
  const server = new ApiServer({
    store,
    clock,
    logger: silentLogger(),
    authorizer: { authorize: () => ({ verdict: "allow", reason: "test" }) },
  });
  const user = { username: "test", groups: ["system:masters"] };
  const transport: Transport = {
    async request(request) {
      const { body, ...head } = await server.handle({ ...request, user });
      return { ...head, body: Array.isArray(body) ? parts(body) : (body as AsyncIterable<Uint8Array>) };
    },
    upgrade: () => Promise.reject(new Error("no streams in this test")),
    close: () => Promise.resolve(),
  };
  return {
    store,
    transport,
    client: createClient(transport),
    serveOwnKinds: () => server.installCrds(ownCrds()),
    async [Symbol.asyncDispose]() {
      await server.close();
      await store.close();
    },
  };
}

async function* parts(bytes: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* bytes;
}
