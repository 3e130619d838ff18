import { expect } from "vitest";
import type {
  ContainerProcess,
  ContainerState,
  RunContainerRequest,
  RuntimeName,
} from "../../packages/server/src/node/host/container.ts";
import type { Host, SweepRequest } from "../../packages/server/src/node/host/host.ts";
import { HostError, type HostErrorCode } from "../../packages/server/src/node/host/host-error.ts";

/** A helper to be held to the contract. */
export interface ContractHost {
  readonly host: Host;
  /** Puts a blob where `unpackLayer` finds it, by its path below the node's directory. */
  readonly putBlob: (path: string, bytes: Uint8Array) => Promise<void>;
  /** What a container wrote to a path below the node's directory. */
  readonly readOutput: (path: string) => Promise<string>;
}

/** One behaviour that every helper has. */
export interface ContractCase {
  readonly title: string;
  run(subject: ContractHost, runtime: RuntimeName): Promise<void>;
}

/** Nothing is wanted any more. */
export const sweepAll: SweepRequest = {
  containers: [],
  rootfs: [],
  writableLayers: [],
  volumes: [],
  emptyDirs: [],
  files: [],
  slots: [],
  cgroups: [],
  saved: [],
  network: false,
};

/** Bytes of the sizes that cases use. */
export const mebibyte = 2 ** 20;

/** A process with the least it needs. */
export function processOf(...argv: string[]): ContainerProcess {
  return { argv, env: ["PATH=/usr/bin:/bin"], cwd: "/", uid: 0, gid: 0, capabilities: [], noNewPrivileges: true };
}

/** A container on the root file system of its own name. */
export function containerOf(
  id: string,
  runtime: RuntimeName,
  argv: readonly string[],
  more: Partial<RunContainerRequest> = {},
): RunContainerRequest {
  return { id, runtime, rootfs: id, process: processOf(...argv), mounts: [], ...more };
}

/** Prepares a root file system of the built-in image and runs a container on it. */
export async function runOnHostUsr(host: Host, request: RunContainerRequest): Promise<void> {
  await host.prepareRootfs({ id: request.rootfs, hostUsr: true, writableBytes: 64 * mebibyte });
  await host.runContainer(request);
}

/** A container as the host lists it. */
export async function stateOf(host: Host, id: string): Promise<ContainerState | undefined> {
  return (await host.listContainers()).find((state) => state.id === id);
}

/** Passes if the verb rejected with the code. */
export async function expectCode(code: HostErrorCode, promise: Promise<unknown>): Promise<void> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(HostError);
  expect((error as HostError).code).toBe(code);
}
