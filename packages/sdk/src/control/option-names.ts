import type { OptionNames } from "../errors/known-options.ts";
import type {
  CallTarget,
  ClaimOptions,
  CreateOptions,
  ForkOptions,
  SnapshotOptions,
  WaitOptions,
} from "./create-options.ts";

const waitingCallNames: OptionNames<CallTarget & WaitOptions> = {
  engine: true,
  namespace: true,
  signal: true,
  readyTimeoutMs: true,
  onProgress: true,
};

/** The names of the options of `Sandbox.create`; `open` has all but the name. */
export const createOptionNames: OptionNames<CreateOptions> = {
  image: true,
  name: true,
  fromSnapshot: true,
  env: true,
  cpu: true,
  memory: true,
  disk: true,
  volumes: true,
  command: true,
  workdir: true,
  ttlMs: true,
  autoSuspendMs: true,
  suspensionStrategy: true,
  hibernateAfterMs: true,
  wakePolicy: true,
  podFailurePolicy: true,
  runtime: true,
  labels: true,
  annotations: true,
  podTemplate: true,
  spec: true,
  ...waitingCallNames,
};

/** Those of `Sandbox.claim`. */
export const claimOptionNames: OptionNames<ClaimOptions> = {
  name: true,
  env: true,
  ttlMs: true,
  startPolicy: true,
  labels: true,
  ...waitingCallNames,
};

/** Those of `snapshot`. */
export const snapshotOptionNames: OptionNames<SnapshotOptions> = {
  name: true,
  memory: true,
  ttlMs: true,
  waitTimeoutMs: true,
  signal: true,
};

/** Those of `fork`. */
export const forkOptionNames: OptionNames<ForkOptions> = {
  name: true,
  memory: true,
  ttlMs: true,
  readyTimeoutMs: true,
  onProgress: true,
  signal: true,
};
