import type { KubeObject } from "@agent-sandbox/api/meta";

/** One document of a manifest. */
export interface Manifest {
  /** Where it came from, for messages: `file.yaml`, or `file.yaml, document 2`. */
  readonly source: string;
  readonly object: KubeObject;
}
