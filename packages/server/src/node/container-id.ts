import { createHash } from "node:crypto";

/** The name of everything a pod has on the host: its uid without dashes, so that it fits where names are short. */
export function podHostId(podUid: string): string {
  return podUid.replaceAll("-", "").toLowerCase();
}

/** The id of one start of one container; a restart has another, so that two starts are never confused. */
export function containerHostId(podUid: string, container: string, attempt: number): string {
  return `${podHostId(podUid)}-${shortHash(`${container}/${attempt}`)}`;
}

/** The id of a thing that a pod has by name: a volume, a root file system. */
export function partHostId(podUid: string, kind: string, name: string): string {
  return `${podHostId(podUid)}-${shortHash(`${kind}:${name}`)}`;
}

function shortHash(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}
