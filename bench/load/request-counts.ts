import type { Credentials } from "@agent-sandbox/kube";
import { HttpLoad } from "./http-load.ts";

/** Requests by verb and resource. */
export type RequestCounts = Readonly<Record<string, number>>;

const countedResources = /resource="(sandboxclaims|sandboxes|sandboxwarmpools|events|pods)"/;

/** Writes so far, from a real API server's own counter. */
export async function writesOf(credentials: Credentials): Promise<RequestCounts> {
  using load = new HttpLoad(credentials);
  const { text } = await load.send("GET", "/metrics");
  const counts: Record<string, number> = {};
  for (const [, labels = "", value = ""] of text.matchAll(/^apiserver_request_total\{([^}]*)\} (\S+)/gm)) {
    const verb = /verb="(POST|PUT|PATCH|APPLY|DELETE)"/.exec(labels)?.[1];
    const resource = countedResources.exec(labels)?.[1];
    if (verb === undefined || resource === undefined) continue;
    const code = /code="(\d+)"/.exec(labels)?.[1] ?? "";
    const subresource = /subresource="(\w+)"/.exec(labels)?.[1];
    const what = subresource === undefined ? resource : `${resource}/${subresource}`;
    const key = `${verb} ${what}${code.startsWith("2") ? "" : ` ${code}`}`;
    counts[key] = (counts[key] ?? 0) + Number(value);
  }
  return counts;
}

/** What came since, for a line of text. */
export function countsSince(before: RequestCounts, after: RequestCounts): string {
  return Object.entries(after)
    .filter(([key, count]) => count !== (before[key] ?? 0))
    .map(([key, count]) => `${key} ${count - (before[key] ?? 0)}`)
    .sort()
    .join(", ");
}
