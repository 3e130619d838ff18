/** What went wrong on the way to a registry, and what to do about it, by the code that Node gives it. */
const failures: readonly { readonly codes: RegExp; readonly what: string; readonly hint: (host: string) => string }[] =
  [
    {
      codes: /^(ENOTFOUND|EAI_NODATA|EAI_NONAME)$/,
      what: "its name cannot be resolved",
      hint: (host) =>
        `check that ${host} is spelt right and that this machine's DNS knows it, or name a mirror in registries.json`,
    },
    {
      codes: /^EAI_AGAIN$/,
      what: "no DNS server answers",
      hint: () =>
        "check this machine's network and /etc/resolv.conf, or load the image from a file with: agent-sandbox image load",
    },
    {
      codes: /^ECONNREFUSED$/,
      what: "nothing listens there",
      hint: (host) => `check that the registry runs and that ${host} has the right port`,
    },
    {
      codes: /^(ENETUNREACH|EHOSTUNREACH|ENETDOWN|EADDRNOTAVAIL)$/,
      what: "there is no route to it",
      hint: () =>
        "check this machine's network, name a mirror in registries.json, or load the image from a file with: agent-sandbox image load",
    },
    {
      codes: /^(ETIMEDOUT|UND_ERR_CONNECT_TIMEOUT|UND_ERR_HEADERS_TIMEOUT|NO_ANSWER)$/,
      what: "it does not answer",
      hint: () => "a firewall may drop the packets; name a mirror that can be reached in registries.json",
    },
    {
      codes: /^(ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG|EPROTO)$/,
      what: "it does not speak TLS",
      hint: (host) => `if it is meant to be spoken to in the clear, add "${host}" to "insecure" in registries.json`,
    },
    {
      codes: /^ERR_TLS_CERT_ALTNAME_INVALID$/,
      what: "its certificate is for another name",
      hint: () => "use the name that the certificate has",
    },
    {
      codes: /^(CERT_HAS_EXPIRED|CERT_NOT_YET_VALID)$/,
      what: "its certificate is not valid now",
      hint: () => "check this machine's clock, or have the certificate renewed",
    },
    {
      codes:
        /^(SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_VERIFY_LEAF_SIGNATURE|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?|CERT_UNTRUSTED)$/,
      what: "its certificate is of an authority that this machine does not trust",
      hint: () => 'add the authority\'s PEM file to "caFiles" in registries.json',
    },
    {
      codes: /^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/,
      what: "it broke the connection off",
      hint: () => "try again; if it goes on, look at the registry's log",
    },
  ];

/** Thrown for a registry that does not begin its answer in time. */
export class NoAnswerError extends Error {
  readonly code = "NO_ANSWER";
}

/** One sentence about why a registry could not be reached: which, what failed, what to do. */
export function describeFailure(url: string, error: unknown): string {
  const { origin, host } = new URL(url);
  const { code, message } = causeOf(error);
  const known = failures.find(({ codes }) => codes.test(code));
  if (known === undefined) return `cannot reach ${origin}: ${message || code || "unknown failure"}`;
  return `cannot reach ${origin}: ${known.what} (${code}); ${known.hint(host)}`;
}

/** Where the credentials of a registry that asks for them go. */
export const credentialsHint =
  "give some in an imagePullSecret of the Pod, or in docker-config.json of the data directory for every Pod";

/** `fetch` hides the reason in a cause; where several addresses were tried, that is a list without a text of its own. */
function causeOf(error: unknown): { readonly code: string; readonly message: string } {
  if (error instanceof AggregateError && error.errors.length > 0) return causeOf(error.errors[0]);
  if (!(error instanceof Error)) return { code: "", message: String(error) };
  if (error.cause instanceof Error) return causeOf(error.cause);
  const { code = "" } = error as NodeJS.ErrnoException;
  return { code, message: error.message };
}
