import type { Pod, PodDNSConfig } from "@agent-sandbox/api";

/** Longest host name the kernel takes. */
const hostnameLengthMax = 63;

/** The pod's host name. */
export function hostnameOf(pod: Pod): string {
  const name = pod.spec?.hostnameOverride ?? pod.spec?.hostname ?? pod.metadata.name;
  return name.slice(0, hostnameLengthMax).replace(/[-.]+$/, "");
}

/** What the node knows about names. */
export interface NameFacts {
  readonly domain: string;
  /** The resolver of this node, on the gateway address. */
  readonly gateway: string;
  /** The machine's own resolvers, for `dnsPolicy: Default`. */
  readonly nodeResolvers: readonly string[];
  readonly nodeSearches: readonly string[];
}

/**
 * The pod's /etc/resolv.conf. The gateway is always among the resolvers, first where the cluster's names are wanted:
 * the names of sandboxes must resolve also where a template replaces the resolvers.
 */
export function resolvConf(pod: Pod, facts: NameFacts): string {
  const policy = pod.spec?.dnsPolicy ?? "ClusterFirst";
  const namespace = pod.metadata.namespace ?? "default";
  const cluster = [`${namespace}.svc.${facts.domain}`, `svc.${facts.domain}`, facts.domain];
  const base: Required<Pick<PodDNSConfig, "nameservers" | "searches">> & { options: string[] } =
    policy === "None"
      ? { nameservers: [facts.gateway], searches: [], options: [] }
      : policy === "Default"
        ? { nameservers: [facts.gateway], searches: [...facts.nodeSearches], options: [] }
        : { nameservers: [facts.gateway], searches: [...cluster, ...facts.nodeSearches], options: ["ndots:5"] };
  const own = pod.spec?.dnsConfig;
  const options = new Map(base.options.map((option) => [option.split(":")[0] ?? option, option]));
  for (const { name = "", value } of own?.options ?? [])
    options.set(name, value === undefined ? name : `${name}:${value}`);
  // Resolvers take three servers and ignore the rest.
  const servers = [...new Set([...base.nameservers, ...(own?.nameservers ?? [])])].slice(0, 3);
  const searches = [...new Set([...base.searches, ...(own?.searches ?? [])])].slice(0, 32);
  return [
    ...servers.map((server) => `nameserver ${server}`),
    ...(searches.length > 0 ? [`search ${searches.join(" ")}`] : []),
    ...(options.size > 0 ? [`options ${[...options.values()].join(" ")}`] : []),
    "",
  ].join("\n");
}

/** The pod's /etc/hosts. */
export function hostsFile(pod: Pod, address: string, domain: string): string {
  const hostname = hostnameOf(pod);
  const { subdomain } = pod.spec ?? {};
  const namespace = pod.metadata.namespace ?? "default";
  const full =
    subdomain === undefined || subdomain === "" ? "" : `${hostname}.${subdomain}.${namespace}.svc.${domain}\t`;
  const aliases = (pod.spec?.hostAliases ?? []).map(({ ip, hostnames = [] }) => `${ip}\t${hostnames.join("\t")}`);
  return [
    "# Written by the node for this pod.",
    "127.0.0.1\tlocalhost",
    "::1\tlocalhost ip6-localhost ip6-loopback",
    `${address}\t${full}${hostname}`,
    ...aliases,
    "",
  ].join("\n");
}
