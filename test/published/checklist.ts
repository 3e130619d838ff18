import type { SdkVersion } from "./published-sdk.ts";

/** The ways of the published clients to a sandbox. */
export type Mode =
  | "direct"
  | "direct-tls"
  | "direct-mtls"
  | "gateway"
  | "tunnel"
  | "in-cluster"
  | "sandboxd-tunnel"
  | "sandboxd-pod-ip"
  | "sandboxd-service";

/** One client of one release in one mode. */
export interface Combination {
  readonly version: SdkVersion;
  readonly mode: Mode;
  readonly client: "sync" | "async";
  /** Without what depends on release and client alone, because another combination shows it. */
  readonly isBrief?: boolean;
}

/** One promise to the published clients, and where it counts. The check of that name is in the `checks_*.py` tables. */
export interface Item {
  readonly id: string;
  readonly title: string;
  readonly modes: ReadonlySet<Mode>;
  /** The oldest release that asks for it. */
  readonly since: SdkVersion;
}

const direct: readonly Mode[] = ["direct", "direct-tls", "direct-mtls"];
const routed: readonly Mode[] = [...direct, "gateway", "tunnel"];
const legacy: readonly Mode[] = [...routed, "in-cluster"];
const daemon: readonly Mode[] = ["sandboxd-tunnel", "sandboxd-pod-ip", "sandboxd-service"];
const all: readonly Mode[] = [...legacy, ...daemon];

function item(id: string, title: string, modes: readonly Mode[] = all, since: SdkVersion = "0.5.6"): Item {
  return { id, title, modes: new Set(modes), since };
}

/** The checklist of the compatibility contract (K1 to K36), after what a first program does. */
export const checklist: readonly Item[] = [
  item("run", "commands give output, errors and exit codes"),
  item("files", "files are written, read, listed and looked for"),
  item("streams", "files are streamed", all, "1.0.8"),
  item("delete", "files are deleted where the runtime can", all, "1.0.8"),
  item("attach", "a second client finds the sandbox"),
  item("K1", "bodies without a Content-Type are JSON"),
  item("K2", "every spelling of watch; timeoutSeconds ends it cleanly"),
  item("K3", "a created object has what clients read and keeps what they wrote"),
  item("K4", "a watch begins where it is told to, and a stale version is 410"),
  item("K5", "name and readiness come together, nothing is null"),
  item("K6", "a duplicate name is 409 and changes nothing", all, "1.0.8"),
  item("K7", "delete preconditions are kept", all, "1.0.8"),
  item("K8", "claim names of 253 characters", all, "1.0.8"),
  item("K9", "a terminating claim says so and is not adopted", all, "1.0.8"),
  item("K10", "claim environments, and their refusal", all, "1.0.8"),
  item("K11", "reasons are spelled exactly"),
  item("K12", "a wrong pool fails at once and leaves nothing"),
  item("K13", "label and field selectors"),
  item("K14", "deletion and time to live take claim and Sandbox away"),
  item("K15", "merge patches with null"),
  item("K16", "addresses, service name, Pod name and selector in the status"),
  item("K17", "an idle watch stays open"),
  item("K18", "what kubectl asks before it forwards", ["tunnel", "sandboxd-tunnel"]),
  item("K19", "reading a Sandbox is cheap", ["sandboxd-pod-ip", "sandboxd-service"]),
  item("K20", "credentials are taken, their lack is told as JSON at once", routed),
  item("K21", "the address is a hint, the time limit is kept", routed),
  item("K22", "raw paths, streamed bodies, no redirects", routed),
  item("K23", "5xx only where nothing ran", routed),
  item("K24", "slow commands are not cut", routed),
  item("K25", "TLS and client certificates", ["direct-tls", "direct-mtls"], "1.0.8"),
  item("K26", "a command's time limit kills its group", legacy),
  item("K27", "every spelling of a listing", legacy),
  item("K28", "multipart names and listing fields", legacy),
  item("K29", "404 and 403 that keep the connection", legacy),
  item("K30", "commands run side by side and never twice", legacy),
  item("K31", "the daemon's raw paths", daemon),
  item("K32", "the daemon's file calls", daemon),
  item("K33", "the daemon's Execute", daemon),
  item("K34", "replies below 4 MiB", daemon),
  item("K35", "Start, WriteStdin, SendSignal, ResizeTTY", daemon),
  item("K36", "both ports by the mode's own way", daemon),
];

/** What a combination must show. */
export function itemsOf({ version, mode, isBrief = false }: Combination): readonly Item[] {
  const counts = ({ modes, since }: Item): boolean => modes.has(mode) && (since === "0.5.6" || version === since);
  return checklist.filter((one) => counts(one) && !(isBrief && apiOnly.has(one.id)));
}

/** Items between client and API server, for which the way to the sandbox does not matter. */
const apiOnly: ReadonlySet<string> = new Set(
  [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15].map((number) => `K${number}`),
);

/** Every way the two releases have. Neither has an asynchronous router tunnel; only 1.0.8 knows TLS and the daemon. */
export const everyCombination: readonly Combination[] = [
  { version: "0.5.6", mode: "tunnel", client: "sync" },
  { version: "1.0.8", mode: "tunnel", client: "sync" },
  ...both("0.5.6", ["direct", "gateway", "in-cluster"]),
  ...both("1.0.8", [...direct, "gateway", "in-cluster", ...daemon]),
];

function both(version: SdkVersion, modes: readonly Mode[]): Combination[] {
  return modes.flatMap((mode) => (["sync", "async"] as const).map((client) => ({ version, mode, client })));
}

/** The combinations that every run takes: both defaults, both clients of both releases, and every kind of connection. */
export const dailyCombinations: readonly Combination[] = [
  { version: "0.5.6", mode: "tunnel", client: "sync" },
  { version: "0.5.6", mode: "direct", client: "async" },
  { version: "1.0.8", mode: "tunnel", client: "sync" },
  { version: "1.0.8", mode: "direct-mtls", client: "async" },
  { version: "1.0.8", mode: "in-cluster", client: "async", isBrief: true },
  { version: "1.0.8", mode: "sandboxd-tunnel", client: "async", isBrief: true },
  { version: "1.0.8", mode: "sandboxd-service", client: "sync", isBrief: true },
];
