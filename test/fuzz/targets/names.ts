import {
  dnsLabelProblems,
  dnsSubdomainProblems,
  formatGoDuration,
  matchesLabels,
  parseFieldSelector,
  parseLabelSelector,
  qualifiedNameProblems,
  tryParseGoDuration,
  tryParseQuantity,
  tryParseTimestamp,
  tryParseTimestampNanos,
} from "@agent-sandbox/api";
import { formatFieldSelector, formatLabelSelector } from "@agent-sandbox/api/testing/format-selectors";
import { type FuzzTarget, promise, refusing } from "../fuzz-target.ts";

const isSyntaxError = (error: Error): boolean => error instanceof SyntaxError;

/** Label and field selectors of a list or watch: what is written out again means the same. */
export const selectors: FuzzTarget = {
  name: "selectors",
  seeds: ["a=b,c!=d", "x in (a,b),y notin (c),!z,w", "n>5,m<7", "metadata.name=box,spec.nodeName!=n1", "a==b\\,c"],
  dictionary: [" in ", " notin ", "(", ")", ",", "!", "!=", "==", ">", "<", "\\", "\\,", "metadata.name", "a.b/c"],
  run(input) {
    const text = input.toString("latin1");
    const requirements = refusing(() => parseLabelSelector(text), isSyntaxError);
    if (requirements !== undefined) {
      const written = formatLabelSelector(requirements);
      const again = parseLabelSelector(written);
      for (const labels of [{}, { a: "b" }, { a: "c", x: "a" }, { n: "6" }])
        promise(
          matchesLabels(requirements, labels) === matchesLabels(again, labels),
          `${written} selects something else`,
        );
    }
    const fields = refusing(() => parseFieldSelector(text), isSyntaxError);
    if (fields !== undefined) {
      const written = formatFieldSelector(fields);
      promise(
        JSON.stringify(parseFieldSelector(written)) === JSON.stringify(fields),
        `${written} means something else`,
      );
    }
  },
};

/** Quantities: written and read again they are equal, and no text costs more than its length. */
export const quantities: FuzzTarget = {
  name: "quantities",
  seeds: ["500m", "1.5", "2Gi", "1e3", "-0.5Ki", "100n", "12E", "1E3", ".5", "+1."],
  dictionary: ["Ki", "Mi", "Gi", "Ei", "e", "E", "m", "n", "u", ".", "-", "+", "999999999999999999999", "e9"],
  run(input) {
    const text = input.toString("latin1");
    const quantity = tryParseQuantity(text);
    if (quantity === undefined) return;
    const again = tryParseQuantity(quantity.toString());
    promise(again !== undefined && again.compare(quantity) === 0, `${text} became ${quantity.toString()}`);
  },
};

/** Times and durations. */
export const times: FuzzTarget = {
  name: "times",
  seeds: ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789+01:00", "1h2m3.5s", "-1.5h", "100ms", "0"],
  dictionary: ["T", "Z", "+00:00", ".", "h", "m", "s", "ms", "us", "ns", "9999-12-31", "23:59:60", "-"],
  run(input) {
    const text = input.toString("latin1");
    const ms = tryParseTimestamp(text);
    if (ms !== undefined) promise(Number.isFinite(ms), `${text} is at ${ms}`);
    const nanos = tryParseTimestampNanos(text);
    promise((nanos === undefined) === (ms === undefined), `${text} is a time for one of two readers`);
    const duration = tryParseGoDuration(text);
    if (duration === undefined) return;
    promise(Number.isFinite(duration), `${text} lasts ${duration}`);
    promise(tryParseGoDuration(formatGoDuration(duration)) !== undefined, `${text} cannot be written`);
  },
};

/** Names: what passes as one is safe in a path, a host name and a log line. */
export const objectNames: FuzzTarget = {
  name: "object-names",
  seeds: ["box", "a.b-c.d", "agents.x-k8s.io/name", "A_b.c", "0"],
  dictionary: [".", "..", "-", "/", "_", "%2e", "\n", "\0", "A", "x".repeat(63), "x".repeat(253)],
  run(input) {
    const text = input.toString("latin1");
    if (dnsLabelProblems(text).length === 0) promise(/^[a-z0-9-]{1,63}$/.test(text), `label ${JSON.stringify(text)}`);
    if (dnsSubdomainProblems(text).length === 0) {
      promise(/^[a-z0-9.-]{1,253}$/.test(text) && !text.includes(".."), `subdomain ${JSON.stringify(text)}`);
    }
    if (qualifiedNameProblems(text).length === 0) promise(/^[\w./-]+$/.test(text), `name ${JSON.stringify(text)}`);
  },
};
