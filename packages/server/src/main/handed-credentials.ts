import { existsSync, readFileSync } from "node:fs";
import type { Credentials } from "@agent-sandbox/kube";
import type { KeyAndCertificate } from "../apiserver/auth/certificate.ts";
import type { Layout } from "./layout.ts";
import type { RoleUsers } from "./role-user.ts";
import { writeRootFile } from "./root-files.ts";

/** What a role needs to speak to the API, and to be believed by those who call it. */
export interface HandedCredentials {
  /** Of the API, `https://127.0.0.1:7443`. */
  readonly server: string;
  readonly caBundlePem: string;
  readonly client: KeyAndCertificate;
  readonly serving: KeyAndCertificate;
}

/**
 * What control issues for others at each of its starts. It goes through the supervisor, because only root can put it where its reader alone
 * finds it: control writes into no directory but its own, and root into none that is a role's.
 */
export interface IssuedCredentials {
  readonly adminKubeconfig: string;
  readonly router: HandedCredentials;
  readonly node: HandedCredentials;
}

/** A bundle of ten authorities is a tenth of this. */
const textMax = 256 * 1024;

/** Writes what control issued to where each reader finds its own. Throws where the message is not that. */
export function distributeCredentials(message: unknown, layout: Layout, users: RoleUsers): IssuedCredentials {
  const { adminKubeconfig, router, node } = fieldsOf(message);
  const issued = { adminKubeconfig: textOf(adminKubeconfig), router: parseHanded(router), node: parseHanded(node) };
  writeRootFile(layout.adminKubeconfig, issued.adminKubeconfig);
  for (const role of ["router", "node"] as const) {
    const { credentialsFile } = layout.roles[role];
    const text = JSON.stringify(issued[role]);
    // A role starts again for a file that changed; a control that only started again has nothing else to tell.
    if (textThere(credentialsFile) !== text) writeRootFile(credentialsFile, text, users[role]);
  }
  return issued;
}

function textThere(file: string): string | undefined {
  return existsSync(file) ? readFileSync(file, "utf8") : undefined;
}

/** The credentials that a role was handed. */
export function readCredentials(file: string): HandedCredentials {
  return parseHanded(JSON.parse(readFileSync(file, "utf8")));
}

/** How a role proves itself to the API. */
export function apiCredentials({ server, caBundlePem, client }: HandedCredentials): Credentials {
  return { server, ca: caBundlePem, cert: client.certificatePem, key: client.privateKeyPem };
}

function parseHanded(value: unknown): HandedCredentials {
  const { server, caBundlePem, client, serving } = fieldsOf(value);
  return {
    server: textOf(server),
    caBundlePem: textOf(caBundlePem),
    client: parsePair(client),
    serving: parsePair(serving),
  };
}

function parsePair(value: unknown): KeyAndCertificate {
  const { certificatePem, privateKeyPem } = fieldsOf(value);
  return { certificatePem: textOf(certificatePem), privateKeyPem: textOf(privateKeyPem) };
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new Error("control handed over no credentials");
  return value as Readonly<Record<string, unknown>>;
}

function textOf(value: unknown): string {
  if (typeof value !== "string" || value === "" || value.length > textMax)
    throw new Error(`a credential is not a text of up to ${textMax} characters`);
  return value;
}
