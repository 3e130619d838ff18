import type { Clock } from "@agent-sandbox/kube";
import { ArchiveError } from "./archive-error.ts";
import type { ArchiveStore } from "./archive-store.ts";
import { DirectoryStore } from "./directory-store.ts";
import { S3Store } from "./s3-store.ts";
import type { S3Credentials } from "./sign-request.ts";

/** Where archives go, as the flags name it. */
export type ArchiveSettings =
  | { readonly kind: "directory"; readonly directory: string }
  | {
      readonly kind: "s3";
      readonly bucket: string;
      /** Empty, or ending in `/`. */
      readonly prefix: string;
      readonly endpoint: string;
      readonly credentialsFile: string;
    };

/** The flags about archives. */
export interface ArchiveFlags {
  readonly archive?: string;
  readonly archiveEndpoint?: string;
  readonly archiveCredentials?: string;
}

/** Reads the flags; undefined where they name no archive. Throws ArchiveError with the name of the flag. */
export function parseArchiveFlags(flags: ArchiveFlags): ArchiveSettings | undefined {
  const { archive, archiveEndpoint, archiveCredentials } = flags;
  const other = archiveEndpoint === undefined ? archiveCredentials && "--archive-credentials" : "--archive-endpoint";
  if (archive === undefined) {
    if (other === undefined) return undefined;
    throw new ArchiveError("invalid", `${other} is for an archive: name one with --archive s3://BUCKET/PREFIX`);
  }
  const match = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([A-Za-z0-9._/-]*))?$/.exec(archive);
  if (match === null && /^[a-z0-9]+:\/\//i.test(archive))
    throw new ArchiveError("invalid", `--archive: '${archive}' is neither a directory nor s3://BUCKET/PREFIX`);
  if (match === null) {
    if (other !== undefined) throw new ArchiveError("invalid", `${other} is for s3://, not for a directory`);
    if (!archive.startsWith("/")) throw new ArchiveError("invalid", `--archive: '${archive}' is not an absolute path`);
    return { kind: "directory", directory: archive };
  }
  if (archiveCredentials === undefined || !archiveCredentials.startsWith("/"))
    throw new ArchiveError(
      "invalid",
      "--archive-credentials: s3:// needs the absolute path of a file with credentials",
    );
  const prefix = (match[2] ?? "").replace(/^\/+|\/+$/g, "");
  return {
    kind: "s3",
    bucket: match[1] ?? "",
    prefix: prefix === "" ? "" : `${prefix}/`,
    endpoint: endpointOf(archiveEndpoint).href,
    credentialsFile: archiveCredentials,
  };
}

/** What is signed is not encrypted: without TLS only this machine may be spoken to. */
function endpointOf(text: string | undefined): URL {
  const url = text === undefined ? null : URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol) || url.search !== "" || url.username !== "")
    throw new ArchiveError("invalid", `--archive-endpoint: '${text ?? ""}' is not an https:// URL of an S3 service`);
  if (url.protocol === "http:" && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(url.hostname))
    throw new ArchiveError("invalid", `--archive-endpoint: '${text}' is not on this machine: use https://`);
  return url;
}

/** Reads a credentials file as AWS has it: the section `default`, or the first. Exported for tests. */
export function parseS3Credentials(text: string): S3Credentials {
  const sections = new Map<string, Map<string, string>>();
  let section = new Map<string, string>();
  for (const line of text.split("\n").map((each) => each.trim())) {
    const head = /^\[(.+)\]$/.exec(line)?.[1];
    const [, key, value] = /^([a-z_]+)\s*=\s*(\S+)$/.exec(line) ?? [];
    if (head !== undefined) section = new Map();
    if (head !== undefined || sections.size === 0) sections.set(head ?? "default", section);
    if (key !== undefined && value !== undefined) section.set(key, value);
  }
  const chosen = sections.get("default") ?? [...sections.values()][0] ?? new Map<string, string>();
  const [accessKeyId, secretAccessKey] = [chosen.get("aws_access_key_id"), chosen.get("aws_secret_access_key")];
  const sessionToken = chosen.get("aws_session_token");
  if (accessKeyId === undefined || secretAccessKey === undefined)
    throw new ArchiveError("invalid", "the credentials file has no aws_access_key_id and aws_secret_access_key");
  const region = chosen.get("region") ?? "us-east-1";
  return { accessKeyId, secretAccessKey, region, ...(sessionToken !== undefined && { sessionToken }) };
}

/** What opening a store takes besides its settings. */
export interface StoreParts {
  readonly clock: Clock;
  readonly random: () => number;
  /** Reads the file of credentials. */
  readonly readFile: (file: string) => string;
}

/** The store that settings name. Whether it can be reached shows with the first call. */
export function openArchiveStore(settings: ArchiveSettings, { clock, random, readFile }: StoreParts): ArchiveStore {
  if (settings.kind === "directory") return new DirectoryStore(settings.directory);
  const { bucket, prefix, endpoint, credentialsFile } = settings;
  const credentials = parseS3Credentials(readFile(credentialsFile));
  return new S3Store({ endpoint: new URL(endpoint), bucket, prefix, credentials, clock, random });
}
