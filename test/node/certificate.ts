import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** A key and a certificate that signs itself, as PEM. */
export interface TestCertificate {
  readonly certificate: string;
  readonly key: string;
}

/** Makes a certificate with a subject such as `/CN=node`, valid for a day. */
export async function makeCertificate(subject: string): Promise<TestCertificate> {
  const directory = await mkdtemp(join(tmpdir(), "certificate-"));
  const paths = { key: join(directory, "key"), certificate: join(directory, "certificate") };
  try {
    const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", subject];
    await promisify(execFile)("openssl", ["req", "-x509", ...kind, "-keyout", paths.key, "-out", paths.certificate]);
    return { certificate: await readFile(paths.certificate, "utf8"), key: await readFile(paths.key, "utf8") };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
