import { isIP, isIPv4, isIPv6 } from "node:net";

type FormatCheck = (text: string) => boolean;

const dateTime =
  /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?([Zz]|[+-]\d{2}:?\d{2})$/;
const duration =
  /^(-?\d+(\.\d+)?\s*(ns|us|µs|ms|s|m|h|d|w|nanos?|micros?|millis?|secs?|minutes?|hours?|days?|weeks?))+$/;
const uuid = /^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i;

/** The string formats Kubernetes enforces in custom resources; any other format is ignored. */
const formats: Readonly<Record<string, FormatCheck>> = {
  "date-time": (text) => dateTime.test(text),
  date: (text) => /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text)),
  duration: (text) => duration.test(text),
  uuid: (text) => uuid.test(text),
  uuid3: (text) => uuid.test(text) && text.replaceAll("-", "")[12] === "3",
  uuid4: (text) => uuid.test(text) && text.replaceAll("-", "")[12] === "4",
  uuid5: (text) => uuid.test(text) && text.replaceAll("-", "")[12] === "5",
  ipv4: (text) => isIPv4(text),
  ipv6: (text) => isIPv6(text),
  cidr: isCidr,
  uri: (text) => URL.canParse(text) || text.startsWith("/"),
  email: (text) => /^[^\s@]+@[^\s@]+$/.test(text),
  hostname: (text) =>
    /^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\.?$/.test(text),
  mac: (text) => /^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$/.test(text),
  byte: (text) => /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text),
};

/** Whether the text satisfies the format; an unknown format is satisfied by everything. */
export function matchesFormat(format: string, text: string): boolean {
  const check = Object.hasOwn(formats, format) ? formats[format] : undefined;
  return check === undefined || check(text);
}

function isCidr(text: string): boolean {
  const [address = "", bits = "", ...rest] = text.split("/");
  const family = isIP(address);
  return rest.length === 0 && family !== 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128);
}
