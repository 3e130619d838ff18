import { annotationKeys, asJson, badRequest, isJsonObject, type JsonObject, notFound } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";
import { type RequestScope, subjectOf } from "../scope/scope.ts";

/** Where on which node a request about a pod goes. */
export interface NodeTarget {
  readonly nodeName: string;
  /** The component behind a virtual Pod; it is dialled instead of a node. */
  readonly component?: string;
  /** In the kubelet's shape, with query. */
  readonly path: string;
}

/** The node and kubelet path for exec, attach, log and portforward of a pod; throws NotFound or BadRequest. */
export function podTarget(scope: RequestScope): NodeTarget {
  const stored = scope.server.storage.get(scope.definition, scope);
  if (stored === undefined) throw notFound(subjectOf(scope));
  const spec = objectAt(asJson(stored.object), "spec") ?? {};
  const component = stored.object.metadata.annotations?.[annotationKeys.virtualPod];
  if (component !== undefined && scope.subresource === "portforward")
    return { nodeName: "", component, path: kubeletPath(scope, spec) };
  const path = kubeletPath(scope, spec);
  const nodeName = stringAt(spec, "nodeName") ?? "";
  if (nodeName === "") throw badRequest(`pod ${scope.name} does not have a host assigned`);
  return { nodeName, path };
}

function kubeletPath(scope: RequestScope, spec: JsonObject): string {
  const at = `${encodeURIComponent(scope.namespace)}/${encodeURIComponent(scope.name)}`;
  const { query } = scope;
  switch (scope.subresource) {
    case "portforward":
      return `/portForward/${at}${search(pick(query, ["ports"], { ports: "port" }))}`;
    case "log":
      return `/containerLogs/${at}/${container(scope, spec)}${search(pick(query, logParameters))}`;
    case "exec":
    case "attach":
      return `/${scope.subresource}/${at}/${container(scope, spec)}${search(commandQuery(query))}`;
    default:
      throw badRequest(`pods/${scope.subresource} is not served by nodes`);
  }
}

const logParameters = [
  "follow",
  "previous",
  "sinceSeconds",
  "sinceTime",
  "timestamps",
  "tailLines",
  "limitBytes",
  "stream",
];

/** The kubelet calls the streams input, output and error. */
function commandQuery(query: URLSearchParams): URLSearchParams {
  const result = new URLSearchParams();
  for (const command of query.getAll("command")) result.append("command", command);
  const renamed = { stdin: "input", stdout: "output", stderr: "error", tty: "tty" } as const;
  for (const [from, to] of Object.entries(renamed)) if (isOn(query.get(from))) result.set(to, "1");
  if (!["input", "output", "error"].some((name) => result.has(name))) {
    throw badRequest("you must specify at least 1 of stdin, stdout, stderr");
  }
  return result;
}

function isOn(value: string | null): boolean {
  return value === "1" || value === "true" || value === "";
}

function pick(
  query: URLSearchParams,
  names: readonly string[],
  rename: Readonly<Record<string, string>> = {},
): URLSearchParams {
  const result = new URLSearchParams();
  for (const name of names) for (const value of query.getAll(name)) result.append(rename[name] ?? name, value);
  return result;
}

function search(query: URLSearchParams): string {
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

const containerFields = ["containers", "initContainers", "ephemeralContainers"];

/** The container asked for, or the pod's only one; the annotation names the default where there are several. */
function container(scope: RequestScope, spec: JsonObject): string {
  const names = containerFields.flatMap((field) =>
    listAt(spec, field)
      .filter(isJsonObject)
      .map((item) => stringAt(item, "name") ?? ""),
  );
  const wanted = scope.query.get("container") ?? "";
  if (wanted !== "") {
    if (names.includes(wanted)) return encodeURIComponent(wanted);
    throw badRequest(`container ${wanted} is not valid for pod ${scope.name}`);
  }
  const own = listAt(spec, "containers")
    .filter(isJsonObject)
    .map((item) => stringAt(item, "name") ?? "");
  const [first] = own;
  if (own.length === 1 && first !== undefined) return encodeURIComponent(first);
  const preferred = scope.server.storage.get(scope.definition, scope)?.object.metadata.annotations?.[
    "kubectl.kubernetes.io/default-container"
  ];
  if (preferred !== undefined && own.includes(preferred)) return encodeURIComponent(preferred);
  throw badRequest(`a container name must be specified for pod ${scope.name}, choose one of: [${own.join(" ")}]`);
}
