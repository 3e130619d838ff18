import { type Pod, serviceAccounts, type TokenRequest } from "@agent-sandbox/api";
import type { Client, Clock } from "@agent-sandbox/kube";
import type { TokenWish } from "./volume-files.ts";

interface CachedToken {
  readonly token: string;
  readonly renewAtMs: number;
}

/** Service-account tokens bound to pods, renewed when four fifths of their life are over, as the kubelet does. */
export class TokenCache {
  readonly #client: Client;
  readonly #clock: Clock;
  readonly #tokens = new Map<string, CachedToken>();

  constructor({ client, clock }: { readonly client: Client; readonly clock: Clock }) {
    this.#client = client;
    this.#clock = clock;
  }

  get(pod: Pod, wish: TokenWish): string | undefined {
    return this.#tokens.get(keyOf(pod, wish))?.token;
  }

  /** When the first of a pod's tokens should be renewed. */
  renewAtMs(pod: Pod): number | undefined {
    const prefix = `${pod.metadata.uid ?? ""}/`;
    const times = [...this.#tokens].filter(([key]) => key.startsWith(prefix)).map(([, { renewAtMs }]) => renewAtMs);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  /** Obtains the tokens a pod's volumes ask for, those that are due for renewal included. */
  async ensure(pod: Pod, signal: AbortSignal): Promise<void> {
    for (const wish of wishesOf(pod)) {
      const known = this.#tokens.get(keyOf(pod, wish));
      if (known !== undefined && this.#clock.nowMs() < known.renewAtMs) continue;
      this.#tokens.set(keyOf(pod, wish), await this.#request(pod, wish, signal));
    }
  }

  forget(podUid: string): void {
    for (const key of this.#tokens.keys()) if (key.startsWith(`${podUid}/`)) this.#tokens.delete(key);
  }

  async #request(pod: Pod, { audience, expirationSeconds }: TokenWish, signal: AbortSignal): Promise<CachedToken> {
    const { namespace = "", name: podName, uid = "" } = pod.metadata;
    const account = pod.spec?.serviceAccountName ?? "default";
    const body: TokenRequest = {
      apiVersion: "authentication.k8s.io/v1",
      kind: "TokenRequest",
      metadata: { name: account, namespace },
      spec: {
        audiences: audience === undefined || audience === "" ? [] : [audience],
        expirationSeconds,
        boundObjectRef: { apiVersion: "v1", kind: "Pod", name: podName, uid },
      },
    };
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/${serviceAccounts.resource}/${encodeURIComponent(account)}/token`;
    const answer = await this.#client.raw<TokenRequest>({ method: "POST", path, body }, { signal });
    const token = answer.status?.token ?? "";
    const nowMs = this.#clock.nowMs();
    const expiresMs = Date.parse(answer.status?.expirationTimestamp ?? "");
    const lifeMs = Number.isNaN(expiresMs) ? expirationSeconds * 1000 : expiresMs - nowMs;
    return { token, renewAtMs: nowMs + lifeMs * 0.8 };
  }
}

/** The tokens a pod's projected volumes name. */
function wishesOf(pod: Pod): TokenWish[] {
  return (pod.spec?.volumes ?? []).flatMap((volume) =>
    (volume.projected?.sources ?? []).flatMap(({ serviceAccountToken }) => {
      if (serviceAccountToken === undefined) return [];
      const { audience, expirationSeconds = 3600 } = serviceAccountToken;
      return [{ expirationSeconds, ...(audience !== undefined && { audience }) }];
    }),
  );
}

function keyOf(pod: Pod, { audience = "", expirationSeconds }: TokenWish): string {
  return `${pod.metadata.uid ?? ""}/${audience}/${expirationSeconds}`;
}
