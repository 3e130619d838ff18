import type { Container, Pod } from "@agent-sandbox/api";
import { isSidecar } from "../pod-spec/resources.ts";

/** What the restart policy says about a container that ended. */
export function restarts(question: {
  readonly pod: Pod;
  readonly container: Container;
  readonly isInit: boolean;
  readonly exitCode: number;
}): boolean {
  const { pod, container, isInit, exitCode } = question;
  if (isInit && isSidecar(container)) return true;
  const policy = pod.spec?.restartPolicy ?? "Always";
  if (isInit) return exitCode !== 0 && policy !== "Never";
  return policy === "Always" || (policy === "OnFailure" && exitCode !== 0);
}
