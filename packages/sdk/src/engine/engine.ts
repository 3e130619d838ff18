import type { Client } from "@agent-sandbox/kube/client";
import type { Credentials } from "@agent-sandbox/kube/credentials";
import type { DataPlane } from "../plane/data-plane.ts";

/** A sandbox to reach; the Pod is asked for only where a tunnel needs it. */
export interface PlaneTarget {
  readonly namespace: string;
  readonly name: string;
  /** Which of all sandboxes of that name is meant. */
  readonly uid: string;
  /** False where the sandbox's template keeps sandboxd out; commands then go through `pods/exec`. */
  readonly hasDaemon: boolean;
  /** The Pod and its addresses as they are now; rejects where the sandbox has none. */
  readonly findPod: (signal?: AbortSignal) => Promise<{ readonly name: string; readonly addresses: readonly string[] }>;
}

/** An engine: a Kubernetes API with our kinds, and a way to the sandboxes behind it. */
export interface Engine {
  /** `local`: the one-machine engine of this host. */
  readonly kind: "local" | "cluster";
  /** Where the API is, for messages. */
  readonly server: string;
  /** The namespace that is meant where none is named. */
  readonly namespace: string;
  readonly client: Client;
  readonly credentials: Credentials;
  /** Where links for browsers begin; absent where no router is known. */
  readonly routerUrl: string | undefined;
  /** Makes the best way to a sandbox that this engine has. */
  openPlane(target: PlaneTarget): DataPlane;
  /** A plane to the router itself. Preconditions: `routerUrl` is known. */
  openRouter(): DataPlane;
  /** Whether the API is our own, whose node runs images without a command and knows the image `host`. */
  isOwn(): Promise<boolean>;
  close(): Promise<void>;
}
