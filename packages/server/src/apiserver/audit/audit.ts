import type { UserInfo } from "../request/user-info.ts";

/** How much is written: nothing, who did what, or also the request body of writes. Bodies of secrets and tokens are never written. */
export type AuditLevel = "off" | "metadata" | "request";

/** One answered request. */
export interface AuditEvent {
  readonly auditId: string;
  readonly receivedAtMs: number;
  readonly answeredAtMs: number;
  readonly user: UserInfo;
  /** Who asked, when `user` is impersonated. */
  readonly impersonator?: UserInfo;
  readonly sourceIp?: string;
  readonly userAgent?: string;
  readonly verb: string;
  /** With the query, as received. */
  readonly requestUri: string;
  readonly object?: {
    readonly group: string;
    readonly version: string;
    readonly resource: string;
    readonly subresource: string;
    readonly namespace: string;
    readonly name: string;
  };
  readonly status: number;
  readonly decision: "allow" | "forbid";
  readonly reason: string;
  readonly requestObject?: unknown;
}

/** Takes events without ever making a request wait. */
export interface AuditLog {
  readonly level: AuditLevel;
  record(event: AuditEvent): void;
  /** Resolves when everything recorded is on disk. */
  close(): Promise<void>;
}
