import type { Clock } from "@agent-sandbox/kube";
import type { Admission } from "../admission/admission.ts";
import type { AuditLog } from "../audit/audit.ts";
import type { Authorizer } from "../auth/authorizer.ts";
import type { TokenIssuer } from "../auth/token-issuer.ts";
import type { BuiltinSpec } from "../kinds/builtin-kinds.ts";
import type { Registry } from "../registry/registry.ts";
import type { SandboxWaker } from "../sleep/sandbox-waker.ts";
import type { ObjectStorage } from "../storage/object-storage.ts";
import type { NodeDialer } from "./node-dialer.ts";

/** Sources of names that cannot be guessed; tests give predictable ones. */
export interface Ids {
  /** A UUIDv4. */
  uuid(): string;
  /** Five characters for generateName. */
  nameSuffix(): string;
}

/** The parts every request handler may use. */
export interface ServerParts {
  readonly storage: ObjectStorage;
  readonly registry: Registry;
  readonly authorizer: Authorizer;
  readonly admission: readonly Admission[];
  readonly clock: Clock;
  readonly ids: Ids;
  readonly tokenIssuer: TokenIssuer | undefined;
  readonly nodeDialer: NodeDialer | undefined;
  readonly waker: SandboxWaker;
  readonly audit: AuditLog | undefined;
  readonly builtinSpec: BuiltinSpec;
}
