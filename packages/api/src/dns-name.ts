const dnsLabel = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const dnsSubdomain = `${dnsLabel}(\\.${dnsLabel})*`;
const dns1035Label = "[a-z]([-a-z0-9]*[a-z0-9])?";
const qualifiedPart = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const labelValue = `(${qualifiedPart})?`;

/** Longest DNS label, and with it longest label value and name part of a key. */
const dnsLabelLengthMax = 63;
/** Longest DNS name. */
const dnsSubdomainLengthMax = 253;

interface Rule {
  readonly pattern: string;
  readonly lengthMax: number;
  /** What the length is counted in, in Kubernetes' words. */
  readonly unit?: "bytes";
  /** The sentence of Kubernetes' own validation; clients and people know it. */
  readonly message: string;
  readonly examples: readonly string[];
}

const rules = {
  dnsLabel: {
    pattern: dnsLabel,
    lengthMax: dnsLabelLengthMax,
    message:
      "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    examples: ["my-name", "123-abc"],
  },
  dnsSubdomain: {
    pattern: dnsSubdomain,
    lengthMax: dnsSubdomainLengthMax,
    message:
      "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    examples: ["example.com"],
  },
  dns1035Label: {
    pattern: dns1035Label,
    lengthMax: dnsLabelLengthMax,
    message:
      "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    examples: ["my-name", "abc-123"],
  },
  labelValue: {
    pattern: labelValue,
    lengthMax: dnsLabelLengthMax,
    unit: "bytes",
    message:
      "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: ["MyValue", "my_value", "12345"],
  },
  qualifiedPart: {
    pattern: qualifiedPart,
    lengthMax: dnsLabelLengthMax,
    unit: "bytes",
    message:
      "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: ["MyName", "my.name", "123-abc"],
  },
} as const satisfies Record<string, Rule>;

/** Why `value` is no RFC 1123 label; empty where it is one. */
export function dnsLabelProblems(value: string): string[] {
  // One that is a subdomain and no label can only have dots too many.
  if (value.includes(".") && dnsSubdomainProblems(value).length === 0)
    return [...lengthProblems(value, rules.dnsLabel), "must not contain dots"];
  return problems(value, rules.dnsLabel);
}

/** Why `value` is no RFC 1123 subdomain; empty where it is one. Most object names must be one. */
export function dnsSubdomainProblems(value: string): string[] {
  return problems(value, rules.dnsSubdomain);
}

/** Why `value` is no RFC 1035 label; empty where it is one. Service names must be one. */
export function dns1035LabelProblems(value: string): string[] {
  return problems(value, rules.dns1035Label);
}

/** Why `value` cannot be the value of a label; empty where it can. */
export function labelValueProblems(value: string): string[] {
  return problems(value, rules.labelValue);
}

/** Why `value` cannot be the key of a label or annotation; empty where it can. */
export function qualifiedNameProblems(value: string): string[] {
  const parts = value.split("/");
  const [first = "", second] = parts;
  if (parts.length > 2) {
    const about = `a qualified name ${rules.qualifiedPart.message}`;
    return [
      `${about}${explain(rules.qualifiedPart)} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
    ];
  }
  const found: string[] = [];
  if (second !== undefined) {
    if (first === "") found.push("prefix part must be non-empty");
    else found.push(...dnsSubdomainProblems(first).map((problem) => `prefix part ${problem}`));
  }
  const name = second ?? first;
  if (name === "") found.push("name part must be non-empty");
  found.push(...problems(name, rules.qualifiedPart).map((problem) => `name part ${problem}`));
  return found;
}

/** Whether `value` is an RFC 1123 label. */
export function isDnsLabel(value: string): boolean {
  return dnsLabelProblems(value).length === 0;
}

const compiled = new Map<string, RegExp>();

function problems(value: string, rule: Rule): string[] {
  const found = lengthProblems(value, rule);
  let pattern = compiled.get(rule.pattern);
  if (pattern === undefined) {
    pattern = new RegExp(`^${rule.pattern}$`);
    compiled.set(rule.pattern, pattern);
  }
  if (!pattern.test(value)) found.push(rule.message + explain(rule));
  return found;
}

function lengthProblems(value: string, { lengthMax, unit }: Rule): string[] {
  return isLonger(value, lengthMax) ? [`must be no more than ${lengthMax} ${unit ?? "characters"}`] : [];
}

const encoder = new TextEncoder();

/** Whether text has more bytes than this; a unit of it has one to three, so most text need not be encoded to know. */
function isLonger(value: string, bytesMax: number): boolean {
  if (value.length > bytesMax) return true;
  return value.length * 3 > bytesMax && encoder.encode(value).length > bytesMax;
}

function explain(rule: Rule): string {
  const examples = rule.examples.map((example) => `'${example}'`).join(",  or ");
  return ` (e.g. ${examples}, regex used for validation is '${rule.pattern}')`;
}
