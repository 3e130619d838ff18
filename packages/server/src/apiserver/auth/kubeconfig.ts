import type { KeyAndCertificate } from "./certificate.ts";
import { writeSecret } from "./pki.ts";

/** What a kubeconfig for this engine says. */
export interface KubeconfigOptions {
  /** `https://127.0.0.1:7443`. */
  readonly server: string;
  readonly caBundlePem: string;
  readonly credentials: KeyAndCertificate;
  /** Name of cluster, user and context. */
  readonly name: string;
  readonly namespace?: string;
}

/** The text of a kubeconfig with everything inlined, so that the one file is enough. JSON is YAML, and clients read it without a YAML parser. */
export function kubeconfigText({ server, caBundlePem, credentials, name, namespace }: KubeconfigOptions): string {
  const base64 = (text: string) => Buffer.from(text).toString("base64");
  const config = {
    apiVersion: "v1",
    kind: "Config",
    "current-context": name,
    clusters: [{ name, cluster: { server, "certificate-authority-data": base64(caBundlePem) } }],
    users: [
      {
        name,
        user: {
          "client-certificate-data": base64(credentials.certificatePem),
          "client-key-data": base64(credentials.privateKeyPem),
        },
      },
    ],
    contexts: [{ name, context: { cluster: name, user: name, ...(namespace === undefined ? {} : { namespace }) } }],
  };
  return `${JSON.stringify(config, null, 2)}\n`;
}

/** Writes the kubeconfig with mode 0600. */
export async function writeKubeconfig(path: string, options: KubeconfigOptions): Promise<void> {
  await writeSecret(path, kubeconfigText(options));
}
