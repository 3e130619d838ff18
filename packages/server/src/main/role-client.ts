import { watchFile } from "node:fs";
import { type Client, createClient, httpTransport, loadKubeconfig, systemClock } from "@agent-sandbox/kube";

/** The API client of a role that runs outside the control process, with the credentials control wrote for it. */
export async function openRoleClient(kubeconfig: string): Promise<Client> {
  const { credentials } = await loadKubeconfig({ path: kubeconfig, clock: systemClock });
  // Control renews certificates well before they end; a role takes them up by starting again.
  watchFile(kubeconfig, { persistent: false, interval: 60_000 }, (now, before) => {
    if (now.mtimeMs !== before.mtimeMs) process.kill(process.pid, "SIGTERM");
  });
  return createClient(httpTransport(credentials));
}
