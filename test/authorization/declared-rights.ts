/** Who asks: a user bound to the ClusterRole of that name in his namespace, a service account that is `admin` of another, or nobody. */
export const subjects = ["view", "edit", "admin", "sandbox-user", "stranger", "anonymous"] as const;

/** One of them. */
export type Subject = (typeof subjects)[number];

/** `verbs: resources` of one group. `read` is get, list and watch, `write` every verb that changes, `use` is get and create. */
type Line = readonly [group: string, verbs: string, resources: string];

const sandboxes = "agents.x-k8s.io";
const extensions = "extensions.agents.x-k8s.io";
const own = "agent-sandbox.dev";

/** The kinds that articles print: sandbox-user reads them only, because a claim among them brings a pool with it. */
const aliases = "sandboxclaimaliases sandboxtemplatealiases sandboxwarmpoolaliases";

const view: readonly Line[] = [
  [
    "",
    "read",
    "configmaps persistentvolumeclaims pods services serviceaccounts events limitranges resourcequotas namespaces",
  ],
  [
    "",
    "read",
    "pods/log pods/status services/status persistentvolumeclaims/status resourcequotas/status namespaces/status",
  ],
  ["discovery.k8s.io", "read", "endpointslices"],
  ["events.k8s.io", "read", "events"],
  ["networking.k8s.io", "read", "networkpolicies"],
  ["metrics.k8s.io", "read", "pods nodes"],
  [sandboxes, "read", "sandboxes sandboxes/status"],
  [sandboxes, "read", aliases],
  [sandboxes, "read", "sandboxclaimaliases/status sandboxtemplatealiases/status sandboxwarmpoolaliases/status"],
  [extensions, "read", "sandboxclaims sandboxclaims/status sandboxtemplates sandboxtemplates/status"],
  [extensions, "read", "sandboxwarmpools sandboxwarmpools/status"],
  [own, "read", "sandboxsnapshots sandboxsnapshots/status sandboxarchives sandboxarchives/status"],
];

const sandboxUser: readonly Line[] = [
  [extensions, "read create delete patch update", "sandboxclaims"],
  [extensions, "read", "sandboxtemplates sandboxwarmpools"],
  [sandboxes, "read patch suspend resume extend", "sandboxes"],
  [sandboxes, "use", "sandboxes/connect"],
  [sandboxes, "read", aliases],
  [own, "read", "sandboxsnapshots"],
  [own, "read patch recall", "sandboxarchives"],
  ["", "read", "pods pods/log services events"],
  ["", "use", "pods/exec pods/attach pods/portforward"],
  ["discovery.k8s.io", "read", "endpointslices"],
];

const edit: readonly Line[] = [
  ...view,
  ...sandboxUser,
  ["", "write", "configmaps persistentvolumeclaims pods services serviceaccounts events"],
  ["", "read write", "secrets pods/exec pods/attach pods/portforward"],
  ["", "create", "pods/eviction serviceaccounts/token"],
  ["", "impersonate", "serviceaccounts"],
  ["events.k8s.io", "write", "events"],
  ["networking.k8s.io", "write", "networkpolicies"],
  ["coordination.k8s.io", "read write", "leases"],
  [sandboxes, "write", "sandboxes"],
  [sandboxes, "write", aliases],
  [sandboxes, "read write", "sandboxes/scale sandboxes/connect"],
  [extensions, "write", "sandboxclaims sandboxtemplates sandboxwarmpools"],
  [extensions, "read write", "sandboxwarmpools/scale"],
  [own, "write", "sandboxsnapshots sandboxarchives"],
];

const admin: readonly Line[] = [
  ...edit,
  ["rbac.authorization.k8s.io", "read write", "roles rolebindings"],
  ["authorization.k8s.io", "create", "localsubjectaccessreviews"],
];

/** What each holds in his own namespace. */
const inNamespace: Readonly<Record<Subject, readonly Line[]>> = {
  view,
  edit,
  admin,
  "sandbox-user": sandboxUser,
  stranger: admin,
  anonymous: [],
};

/** What everybody who proved who he is holds, outside of any namespace. */
const authenticated: readonly Line[] = [
  ["authorization.k8s.io", "create", "selfsubjectaccessreviews selfsubjectrulesreviews"],
  ["authentication.k8s.io", "create", "selfsubjectreviews"],
];

const words: Readonly<Record<string, readonly string[]>> = {
  read: ["get", "list", "watch"],
  write: ["create", "delete", "deletecollection", "patch", "update"],
  use: ["create", "get"],
};

/** What is asked: a verb on a resource (with its subresource after a slash) of a group, and where. */
export interface Ask {
  readonly group: string;
  readonly resource: string;
  readonly verb: string;
  /** Whether it is about the subject's own namespace, another's, or about the whole engine. */
  readonly scope: "own" | "foreign" | "cluster";
}

/** Whether the declaration allows it. None of these users holds anything in a foreign namespace or across all of them. */
export function isDeclared(subject: Subject, ask: Ask): boolean {
  const general = subject === "anonymous" ? [] : authenticated;
  return [...general, ...(ask.scope === "own" ? inNamespace[subject] : [])].some((line) => covers(line, ask));
}

function covers([group, verbs, resources]: Line, ask: Ask): boolean {
  const known = verbs.split(" ").flatMap((word) => words[word] ?? [word]);
  return group === ask.group && known.includes(ask.verb) && resources.split(" ").includes(ask.resource);
}
