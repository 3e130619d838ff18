import { watchFile } from "node:fs";
import { type Client, createClient, httpTransport } from "@agent-sandbox/kube";
import { apiCredentials, type HandedCredentials, readCredentials } from "./handed-credentials.ts";

/** The API client of a role that runs outside the control process, and what else it was handed. */
export function openRoleClient(file: string): { readonly client: Client; readonly credentials: HandedCredentials } {
  const credentials = readCredentials(file);
  // Control renews certificates well before they end; a role takes them up by starting again.
  watchFile(file, { persistent: false, interval: 60_000 }, (now, before) => {
    if (now.mtimeMs !== before.mtimeMs) process.kill(process.pid, "SIGTERM");
  });
  return { client: createClient(httpTransport(apiCredentials(credentials))), credentials };
}
