import { chmod, type FileHandle, open, rename, rm } from "node:fs/promises";
import type { AuditEvent, AuditLevel, AuditLog } from "./audit.ts";

/** Where the log goes and how large it may grow. */
export interface FileAuditLogOptions {
  readonly path: string;
  readonly level: AuditLevel;
  /** A file that would exceed this is renamed to `<path>.1`; default 100 MiB, Kubernetes' default. */
  readonly fileSizeMaxBytes?: number;
  /** Renamed files kept; default 4. */
  readonly backupsMax?: number;
  /** Bytes waiting for the disk; when exceeded, events are dropped and counted in the next line. Default 16 MiB. */
  readonly queueMaxBytes?: number;
  /** Called with the error of a failed write; requests go on. */
  readonly onError?: (error: unknown) => void;
}

/** JSON lines in Kubernetes' audit shape, written behind the requests. */
export class FileAuditLog implements AuditLog {
  readonly level: AuditLevel;
  readonly #options: Required<Omit<FileAuditLogOptions, "level" | "onError">> & Pick<FileAuditLogOptions, "onError">;
  #file: FileHandle | undefined;
  #fileSizeBytes = 0;
  #queue: Buffer[] = [];
  #queueBytes = 0;
  #dropped = 0;
  #writing: Promise<void> | undefined;

  constructor(options: FileAuditLogOptions) {
    this.level = options.level;
    this.#options = {
      fileSizeMaxBytes: 100 * 2 ** 20,
      backupsMax: 4,
      queueMaxBytes: 16 * 2 ** 20,
      ...options,
    };
  }

  record(event: AuditEvent): void {
    if (this.level === "off") return;
    const line = Buffer.from(`${JSON.stringify(auditLine(event, this.level, this.#dropped))}\n`);
    if (this.#queueBytes + line.length > this.#options.queueMaxBytes) {
      this.#dropped++;
      return;
    }
    this.#dropped = 0;
    this.#queue.push(line);
    this.#queueBytes += line.length;
    this.#writing ??= this.#drain();
  }

  async close(): Promise<void> {
    await this.#writing;
    await this.#file?.close();
    this.#file = undefined;
  }

  async #drain(): Promise<void> {
    // One turn of the loop later, so that events of the same moment share one write.
    await Promise.resolve();
    while (this.#queue.length > 0) {
      const batch = Buffer.concat(this.#queue);
      this.#queue = [];
      try {
        await this.#write(batch);
      } catch (error) {
        this.#options.onError?.(error);
      }
      this.#queueBytes -= batch.length;
    }
    this.#writing = undefined;
  }

  async #write(batch: Buffer): Promise<void> {
    this.#file ??= await this.#open();
    if (this.#fileSizeBytes > 0 && this.#fileSizeBytes + batch.length > this.#options.fileSizeMaxBytes)
      await this.#rotate();
    await this.#file.appendFile(batch);
    this.#fileSizeBytes += batch.length;
  }

  async #open(): Promise<FileHandle> {
    const file = await open(this.#options.path, "a", 0o600);
    await chmod(this.#options.path, 0o600);
    this.#fileSizeBytes = (await file.stat()).size;
    return file;
  }

  async #rotate(): Promise<void> {
    const { path, backupsMax } = this.#options;
    await this.#file?.close();
    this.#file = undefined;
    await rm(`${path}.${backupsMax}`, { force: true });
    for (let number = backupsMax - 1; number >= 0; number--) {
      const from = number === 0 ? path : `${path}.${number}`;
      await rename(from, `${path}.${number + 1}`).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== "ENOENT") throw error;
      });
    }
    this.#file = await this.#open();
  }
}

/** Resources whose bodies hold secrets; their requests are logged without them at every level. */
const confidential = new Set(["secrets", "tokenreviews", "serviceaccounts/token"]);

function auditLine(event: AuditEvent, level: AuditLevel, dropped: number): Record<string, unknown> {
  const { object } = event;
  const plural =
    object === undefined ? "" : object.resource + (object.subresource === "" ? "" : `/${object.subresource}`);
  const withBody = level === "request" && event.requestObject !== undefined && !confidential.has(plural);
  return {
    kind: "Event",
    apiVersion: "audit.k8s.io/v1",
    level: withBody ? "Request" : "Metadata",
    auditID: event.auditId,
    stage: "ResponseComplete",
    requestURI: event.requestUri,
    verb: event.verb,
    user: event.impersonator ?? event.user,
    ...(event.impersonator === undefined ? {} : { impersonatedUser: event.user }),
    ...(event.sourceIp === undefined ? {} : { sourceIPs: [event.sourceIp] }),
    ...(event.userAgent === undefined ? {} : { userAgent: event.userAgent }),
    ...(object === undefined ? {} : { objectRef: objectReference(object) }),
    responseStatus: { metadata: {}, code: event.status },
    ...(withBody ? { requestObject: event.requestObject } : {}),
    requestReceivedTimestamp: new Date(event.receivedAtMs).toISOString(),
    stageTimestamp: new Date(event.answeredAtMs).toISOString(),
    annotations: {
      "authorization.k8s.io/decision": event.decision,
      "authorization.k8s.io/reason": event.reason,
      ...(dropped === 0 ? {} : { "agent-sandbox.dev/dropped-events": String(dropped) }),
    },
  };
}

function objectReference({
  group,
  version,
  resource,
  subresource,
  namespace,
  name,
}: NonNullable<AuditEvent["object"]>) {
  const named = { apiGroup: group, apiVersion: version, resource, subresource, namespace, name };
  return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== ""));
}
