import { join } from "node:path";
import type { Pod } from "@agent-sandbox/api";
import type { PodContext } from "./pod-context.ts";
import { stateDirId } from "./prepare-pod.ts";
import { isInjected } from "./sandboxd-launch.ts";
import { rawLogSuffixes, runName } from "./start-container.ts";

/** Where the log of one run is, and in which form. */
export interface ContainerLog {
  readonly path: string;
  /** `cri`: lines with time and stream, by the daemon. `raw`: what the process wrote, by the runtime. */
  readonly format: "cri" | "raw";
}

/** The log of one run of a container. */
export function containerLog(
  { config, records }: Pick<PodContext, "config" | "records">,
  pod: Pod,
  run: { readonly container: string; readonly attempt: number },
): ContainerLog {
  const uid = pod.metadata.uid ?? "";
  const name = runName(run.container, run.attempt);
  if (isInjected(pod))
    return { path: join(stateDirectory({ config, records }, uid), name, "container.log"), format: "cri" };
  return { path: join(records.directoryOf(uid), `${name}${rawLogSuffixes.stdout}`), format: "raw" };
}

/** Where sandbox-host mounts a pod's state directory; the agent may read what the sandbox wrote there. */
export function stateDirectory({ config, records }: Pick<PodContext, "config" | "records">, podUid: string): string {
  return join(config.hostDir, "mnt/empty", stateDirId(records.get(podUid) ?? { uid: podUid }), "root");
}
