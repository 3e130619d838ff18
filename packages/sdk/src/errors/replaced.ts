import { SandboxError } from "./sandbox-error.ts";

/** The error of a handle whose sandbox is gone while another one has its name. */
export function replaced(namespace: string, name: string): SandboxError {
  return new SandboxError("not-found", `sandbox ${namespace}/${name} is another one of the same name`);
}
