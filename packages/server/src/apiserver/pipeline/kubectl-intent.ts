import { labelKeys } from "@agent-sandbox/api";
import type { RequestScope } from "../scope/scope.ts";

/**
 * kubectl tells every request which of its commands it belongs to. It looks for a Pod before it enters it, and a Pod of a
 * sandbox that sleeps is not there: the look that `kubectl exec` begins with is the beginning of an exec. Any other look
 * stays a look.
 */
const commandHeader = "kubectl-command";

const streamOfCommand: Readonly<Record<string, string>> = {
  "kubectl exec": "exec",
  "kubectl cp": "exec",
  "kubectl attach": "attach",
  "kubectl port-forward": "portforward",
};

/** Wakes the sandbox whose Pod a command of kubectl looks for in order to enter it; everything else passes at once. */
export async function wakeForKubectl(scope: RequestScope, verb: string): Promise<void> {
  const subresource = intendedStream(scope, verb);
  if (subresource === undefined || !mayEnter(scope, subresource)) return;
  const { waker } = scope.server;
  const { namespace, name, request } = scope;
  if (verb === "get") return waker.enter({ namespace, name }, request.signal);
  const hash = selectedHash.exec(scope.query.get("labelSelector") ?? "")?.[1];
  if (hash !== undefined) await waker.enterByHash(namespace, hash, request.signal);
}

/** The selector of a Sandbox's Service, as kubectl writes it. */
const selectedHash = new RegExp(`(?:^|,)${labelKeys.sandboxNameHash.replaceAll(".", "\\.")}==?([a-z0-9]+)(?:,|$)`);

function intendedStream({ request, definition, subresource }: RequestScope, verb: string): string | undefined {
  const command = request.headers?.[commandHeader];
  if (command === undefined || (verb !== "get" && verb !== "list")) return undefined;
  if (definition.group !== "" || definition.resource !== "pods" || subresource !== "") return undefined;
  return streamOfCommand[command];
}

/** Who may not enter the Pod may not wake it either: to him it is simply not there. */
function mayEnter({ server, user, namespace, name }: RequestScope, subresource: string): boolean {
  const attributes = { kind: "resource", verb: "create", group: "", version: "v1", resource: "pods" } as const;
  return server.authorizer.authorize({ ...attributes, subresource, namespace, name }, user).verdict === "allow";
}
