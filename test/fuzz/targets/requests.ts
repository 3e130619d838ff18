import { ApiError, jsonPatch, PatchError } from "@agent-sandbox/api";
import { compileRule } from "../../../packages/server/src/apiserver/cel/compile-rule.ts";
import { JsonSyntaxError, parseJson } from "../../../packages/server/src/apiserver/json/parse-json.ts";
import { parseMediaTypes } from "../../../packages/server/src/apiserver/request/media-type.ts";
import { parseRequestPath } from "../../../packages/server/src/apiserver/request/request-info.ts";
import { tryParseLogLine } from "../../../packages/server/src/node/logs/log-line.ts";
import { parseRoute, RouteError } from "../../../packages/server/src/node/streams/kubelet-routes.ts";
import { tryParseTerminalSize } from "../../../packages/server/src/node/streams/remote-command.ts";
import { parseTarget } from "../../../packages/server/src/router/addressing/parse-target.ts";
import { RoutingError } from "../../../packages/server/src/router/routing-error.ts";
import { type FuzzTarget, promise, refusing } from "../fuzz-target.ts";

/** Bodies of API requests: read as `JSON.parse` reads them, or refused. */
export const jsonBodies: FuzzTarget = {
  name: "json-bodies",
  seeds: ['{"a":[1,2.5,-3e2,true,false,null,"x\\u0041\\n"],"b":{"c":{}}}', "[]", '"\\ud83d\\ude00"', " 1 "],
  dictionary: [
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    '"',
    "\\u0000",
    "\\ud800",
    "1e400",
    "-0",
    "null",
    '"__proto__":',
    "\xef\xbb\xbf",
    "//",
  ],
  run(input) {
    const parsed = refusing(
      () => parseJson(input),
      (error) => error instanceof JsonSyntaxError || error instanceof ApiError,
    );
    if (parsed === undefined) return;
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(input);
    // A lone surrogate cannot be stored as UTF-8: it becomes the replacement character, as in Kubernetes.
    const wanted = wellFormed(JSON.parse(text) as unknown);
    promise(JSON.stringify(wanted) === JSON.stringify(parsed.value), "read as something else");
  },
};

/** JSON patches against a small object. */
export const jsonPatches: FuzzTarget = {
  name: "json-patches",
  seeds: [
    '[{"op":"add","path":"/a/-","value":1},{"op":"test","path":"/b","value":"x"},{"op":"remove","path":"/a/0"}]',
    '[{"op":"move","from":"/a","path":"/c~1d"},{"op":"copy","from":"/b","path":"/e"},{"op":"replace","path":"","value":{}}]',
  ],
  dictionary: [
    '"op":"add"',
    '"op":"move"',
    '"path":"/',
    "/-",
    "~0",
    "~1",
    "/__proto__",
    "/constructor",
    "/0",
    "/-1",
    '"value":',
    '"from":""',
  ],
  run(input) {
    let operations: unknown;
    try {
      operations = JSON.parse(input.toString("latin1"));
    } catch {
      return;
    }
    refusing(
      () => jsonPatch({ a: [1, 2], b: "x" }, operations),
      (error) => error instanceof PatchError,
    );
    promise(Object.getPrototypeOf({}) === Object.prototype && !("polluted" in {}), "a patch reached the prototype");
  },
};

/** Paths and headers of requests, to the API, to the kubelet's endpoint and to the router. */
export const requestTargets: FuzzTarget = {
  name: "request-targets",
  seeds: [
    "/api/v1/namespaces/default/pods/box/exec",
    "/apis/agents.x-k8s.io/v1beta1/namespaces/a/sandboxes",
    "/exec/default/box/main?command=sh&command=-c&input=1",
    "/containerLogs/default/box/main?tailLines=5&sinceTime=2026-01-01T00:00:00Z",
    "/portForward/default/box?port=80,81",
    "/sandboxes/default/box/8888/a%2Fb?x=1",
  ],
  dictionary: [
    "/",
    "//",
    "%2e%2e",
    "%2F",
    "%",
    "%zz",
    "..",
    "?",
    "&",
    "port=",
    "tailLines=-1",
    "sinceSeconds=9e9",
    "limitBytes=",
    "/sandboxes/",
    "namespaces",
  ],
  run(input) {
    const text = `/${input.toString("latin1").replace(/^\/+/, "")}`;
    const path = text.split("?", 1)[0] as string;
    refusing(
      () => parseRequestPath(path),
      (error) => error instanceof ApiError,
    );
    const url = refusing(
      () => new URL(`https://node${text}`),
      (error) => error instanceof TypeError,
    );
    if (url !== undefined)
      refusing(
        () => parseRoute(url, 0),
        (error) => error instanceof RouteError || error instanceof URIError,
      );
    refusing(
      () =>
        parseTarget(
          text,
          { host: "8888-box.default.sandbox.localhost" },
          { hostDomain: "sandbox.localhost", pathPrefix: "/sandboxes", allowLoopbackPodIp: false },
        ),
      (error) => error instanceof RoutingError && error.status === 400,
    );
    parseMediaTypes(text);
  },
};

/** Rules of CRDs: compiled, or refused with a sentence. */
export const celRules: FuzzTarget = {
  name: "cel-rules",
  seeds: [
    "self.replicas >= 0",
    "self.all(x, x.size() < 3) || has(self.a)",
    "self == oldSelf",
    "'a'.matches('^[a-z]+$') ? 1 : 2",
    "quantity('1Gi').isLessThan(quantity('2Gi'))",
  ],
  dictionary: [
    "self",
    "oldSelf",
    ".all(",
    ".map(",
    ".exists(",
    "has(",
    "'",
    '"',
    "&&",
    "||",
    "?",
    ":",
    "[",
    "{",
    "in",
    "size(",
    ".matches(",
    "1u",
    "0x",
    "b'",
    "r'",
    "\\x",
  ],
  run(input) {
    const compiled = compileRule(input.toString("latin1"), { type: "object" } as never);
    if (compiled.kind === "error") promise(compiled.message !== "", "refused without a word");
  },
};

/** What a guest's processes leave in its log, and what a client says of its window. */
export const guestLines: FuzzTarget = {
  name: "guest-lines",
  seeds: [
    "2026-01-02T03:04:05.123456789Z stdout F hello",
    "2026-01-02T03:04:05Z stderr P part",
    '{"Width":80,"Height":24}',
  ],
  dictionary: [" stdout F ", " stderr P ", "Z", "+00:00", '"Width":', '"Height":', "1e9", "-1", "null"],
  run(input) {
    const line = tryParseLogLine(input);
    if (line !== undefined) promise(line.text.length <= input.length && /^[\dT:.Z+-]+$/.test(line.time), "a line grew");
    const size = tryParseTerminalSize(input);
    if (size !== undefined)
      promise(Number.isInteger(size.cols) && size.cols >= 0 && size.cols < 0x1_0000, `${size.cols} columns`);
  },
};

function wellFormed(value: unknown): unknown {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(wellFormed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key.toWellFormed(), wellFormed(inner)]));
}
