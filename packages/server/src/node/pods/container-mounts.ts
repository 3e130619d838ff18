import type { Container, Pod } from "@agent-sandbox/api";
import type { ContainerMount, MountSource } from "../host/container.ts";
import { expandReferences } from "./expand.ts";

/** Either a container's mounts, or why they cannot be made. */
export type MountsResult =
  | { readonly ok: true; readonly mounts: readonly ContainerMount[] }
  | { readonly ok: false; readonly message: string };

/** What a container's mounts follow from. */
export interface MountsQuestion {
  readonly pod: Pod;
  readonly container: Container;
  /** By volume name. */
  readonly volumes: ReadonlyMap<string, MountSource>;
  readonly variables: ReadonlyMap<string, string>;
  /** Files volume with resolv.conf, hosts and hostname. */
  readonly etcFilesId: string;
}

/** The mounts of one container, parents before children, so that none hides another. */
export function containerMounts({ pod, container, volumes, variables, etcFilesId }: MountsQuestion): MountsResult {
  const mounts: ContainerMount[] = ["resolv.conf", "hosts", "hostname"].map((subPath) => ({
    source: { kind: "files", id: etcFilesId, subPath },
    target: `/etc/${subPath}`,
    readOnly: true,
  }));
  for (const mount of container.volumeMounts ?? []) {
    const source = volumes.get(mount.name);
    if (source === undefined)
      return { ok: false, message: `volume "${mount.name}" of container "${container.name}" does not exist` };
    const subPath = mount.subPathExpr === undefined ? mount.subPath : expandReferences(mount.subPathExpr, variables);
    const placed = withSubPath(source, subPath);
    if (placed === undefined)
      return {
        ok: false,
        message: `volume "${mount.name}": subPath ${JSON.stringify(subPath)} must stay below the volume`,
      };
    const isWrittenByNode = source.kind === "files";
    mounts.push({
      source: placed,
      target: mount.mountPath,
      readOnly: mount.readOnly === true || isWrittenByNode || isReadOnlyClaim(pod, mount.name),
    });
  }
  // A mount of the owner's over one of the node's files wins, as with the kubelet.
  const targets = new Map(mounts.map((mount) => [mount.target, mount]));
  return {
    ok: true,
    mounts: [...targets.values()].sort((a, b) => (a.target < b.target ? -1 : a.target > b.target ? 1 : 0)),
  };
}

function isReadOnlyClaim(pod: Pod, volumeName: string): boolean {
  return pod.spec?.volumes?.find(({ name }) => name === volumeName)?.persistentVolumeClaim?.readOnly === true;
}

function withSubPath(source: MountSource, subPath: string | undefined): MountSource | undefined {
  if (subPath === undefined || subPath === "") return source;
  if (subPath.startsWith("/") || subPath.split("/").includes("..")) return undefined;
  switch (source.kind) {
    case "volume":
    case "empty-dir":
    case "files":
      return { ...source, subPath };
    case "host-path":
      return { kind: "host-path", path: `${source.path.replace(/\/$/, "")}/${subPath}` };
    case "program":
    case "tmpfs":
      return undefined;
    default:
      return source satisfies never;
  }
}
