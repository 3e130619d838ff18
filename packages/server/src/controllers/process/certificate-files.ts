import { watch } from "node:fs";
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import type { ControllerFlagValues } from "./flags.ts";
import type { IssuedCertificate } from "./webhook-certificates.ts";

/** The flags that say where an operator's certificate is. */
export type CertificateFlags = Pick<
  ControllerFlagValues,
  "webhook-cert-dir" | "webhook-cert-name" | "webhook-key-name"
>;

/** Certificate files of the operator's; with default names both absent, one `cert.pem` with certificate and key. */
export async function readCertificateFiles(flags: CertificateFlags): Promise<IssuedCertificate> {
  const directory = flags["webhook-cert-dir"];
  const [certificate, key] = [flags["webhook-cert-name"], flags["webhook-key-name"]].map((name) =>
    path.join(directory, name),
  );
  const [hasCertificate, hasKey] = [await isFile(certificate ?? ""), await isFile(key ?? "")];
  const defaults = flags["webhook-cert-name"] === "tls.crt" && flags["webhook-key-name"] === "tls.key";
  if (!hasCertificate && !hasKey && defaults) {
    const combined = await readFile(path.join(directory, "cert.pem"), "utf8");
    return { certificatePem: combined, privateKeyPem: combined };
  }
  if (!hasCertificate || !hasKey)
    throw new Error(`webhook certificate: ${hasCertificate ? key : certificate} is missing`);
  return {
    certificatePem: await readFile(certificate ?? "", "utf8"),
    privateKeyPem: await readFile(key ?? "", "utf8"),
  };
}

/** What is called when the files change. */
export interface CertificateWatcher {
  /** Called with each pair that was read whole. */
  readonly onChange: (certificate: IssuedCertificate) => void;
  /** Files that cannot be read or used; what was served stays served. */
  readonly onError: (error: unknown) => void;
}

/** A Secret's volume changes its two files in one rename, other tools in two writes: a moment later both are there. */
const settleMs = 200;

/** Reads the files again whenever something in their directory changes, until the signal aborts. */
export function watchCertificateFiles(
  flags: CertificateFlags,
  { onChange, onError }: CertificateWatcher,
  signal: AbortSignal,
): void {
  let timer: NodeJS.Timeout | undefined;
  const read = (): void => void readCertificateFiles(flags).then(onChange).catch(onError);
  // The directory, not the files: a volume of a Secret replaces what they link to.
  const watcher = watch(flags["webhook-cert-dir"], { signal, persistent: false }, () => {
    clearTimeout(timer);
    timer = setTimeout(read, settleMs).unref();
  });
  watcher.on("error", onError);
  signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
}

async function isFile(file: string): Promise<boolean> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
  if (found !== undefined && !found.isFile()) throw new Error(`webhook certificate: ${file} is not a file`);
  return found !== undefined;
}
