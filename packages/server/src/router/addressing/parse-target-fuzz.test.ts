import type { IncomingHttpHeaders } from "node:http";
import fc from "fast-check";
import { expect, test } from "vitest";
import { cookieToken, isForeignOrigin, linkParameter, takeLinkToken } from "../access/signed-link.ts";
import { forwardedHeaders } from "../proxy/headers.ts";
import { RoutingError } from "../routing-error.ts";
import { parseTarget } from "./parse-target.ts";

/** The same cases on every run; a failure prints the one it shrank to. */
const seeded = { seed: 61, numRuns: 1000 };
const options = { hostDomain: "sandbox.localhost", pathPrefix: "/sandboxes", allowLoopbackPodIp: false };
const label = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Words that routing gives a meaning to, and anything else. */
const word = fc.oneof(
  fc.constantFrom(
    "",
    "..",
    ".",
    "%2e%2e",
    "%2F",
    "a",
    "box",
    "0",
    "8888",
    "65536",
    "-1",
    "+80",
    "a,b",
    "\t",
    "::1",
    "10.0.0.1",
    "127.0.0.1",
    "169.254.169.254",
  ),
  fc.string({ maxLength: 20, unit: "binary" }),
);
const path = fc.oneof(
  fc.array(word, { maxLength: 6 }).map((words) => `/${words.join("/")}`),
  fc.array(word, { maxLength: 6 }).map((words) => `/sandboxes/${words.join("/")}`),
  word,
);
const headers = fc.record(
  {
    host: fc.oneof(
      word,
      fc.tuple(word, word).map(([a, b]) => `${a}-box.${b}.sandbox.localhost`),
    ),
    "x-sandbox-id": word,
    "x-sandbox-namespace": word,
    "x-sandbox-port": word,
    "x-sandbox-pod-ip": word,
    "x-sandbox-timeout": word,
    "x-sandbox-uid": word,
  },
  { requiredKeys: [] },
) as fc.Arbitrary<IncomingHttpHeaders>;

test("addressing fuzz: a target is a well-formed name and port, or the request is refused with 400", () => {
  fc.assert(
    fc.property(path, headers, (rawPath, given) => {
      try {
        const target = parseTarget(rawPath, given, options);
        expect(target.namespace).toMatch(label);
        expect(target.name).toMatch(label);
        expect(target.port).toBeGreaterThan(0);
        expect(target.port).toBeLessThan(65_536);
        expect(target.timeoutMs ?? 1).toBeGreaterThan(0);
        expect(`${target.pathPrefix}${target.path}`.endsWith(rawPath) || target.form === "path").toBe(true);
        if (target.podIp !== undefined) expect(target.podIp).not.toMatch(/^(127\.|169\.254\.|0\.|::1?$)/);
      } catch (error) {
        expect(error).toBeInstanceOf(RoutingError);
        expect((error as RoutingError).status).toBe(400);
      }
    }),
    seeded,
  );
});

test("addressing fuzz: a path of ours never leads to what a header names", () => {
  fc.assert(
    fc.property(fc.array(word, { maxLength: 5 }), (words) => {
      const given = { "x-sandbox-id": "named-by-header", "x-sandbox-namespace": "elsewhere" };
      try {
        expect(parseTarget(`/sandboxes/${words.join("/")}`, given, options).form).toBe("path");
      } catch (error) {
        expect(error).toBeInstanceOf(RoutingError);
      }
    }),
    seeded,
  );
});

const headerName = fc.oneof(
  fc.constantFrom(
    "Authorization",
    "authorization",
    "X-SANDBOX-ID",
    "Connection",
    "Upgrade",
    "TE",
    "Cookie",
    "X-Forwarded-For",
    "Transfer-Encoding",
    "X-Own",
    "Origin",
  ),
  fc.stringMatching(/^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}$/),
);
const headerValue = fc.oneof(
  fc.constantFrom("close, X-Own", "keep-alive", "trailers", "agent_sandbox_session=secret; a=1"),
  fc.stringMatching(/^[ -~]{0,30}$/),
);

test("header fuzz: no credential, no word of the connection and no forged origin reaches a sandbox", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(headerName, headerValue), { maxLength: 12 }), fc.boolean(), (pairs, isUpgrade) => {
      const out = forwardedHeaders({
        rawHeaders: pairs.flat(),
        upstreamHost: "10.0.0.1:80",
        clientAddress: "192.0.2.1",
        originalHost: "router",
        protocol: "http",
        ownCookie: "agent_sandbox_session",
        isUpgrade,
      });
      const names = out.filter((_each, index) => index % 2 === 0).map((name) => name.toLowerCase());
      const forbidden = ["authorization", "x-sandbox-id", "keep-alive", "transfer-encoding", "proxy-authorization"];
      expect(names.filter((name) => forbidden.includes(name))).toEqual([]);
      expect(names.filter((name) => name === "host" || name === "x-forwarded-for")).toEqual([
        "host",
        "x-forwarded-for",
      ]);
      expect(out[names.lastIndexOf("x-forwarded-for") * 2 + 1]).toBe("192.0.2.1");
      const cookies = out.filter((_each, index) => index % 2 === 1 && names[index >> 1] === "cookie");
      expect(cookies.some((text) => text.includes("agent_sandbox_session="))).toBe(false);
    }),
    seeded,
  );
});

test("link fuzz: a token is taken out of a path once, and nothing else of the path changes", () => {
  fc.assert(
    fc.property(
      fc.stringMatching(/^\/[a-z0-9/%.]{0,20}$/),
      fc.array(fc.stringMatching(/^[a-z]{1,5}=[a-z0-9%]{0,5}$/)),
      (base, query) => {
        const at = query.length >> 1;
        const parts = [...query.slice(0, at), `${linkParameter}=v1.a.b`, ...query.slice(at)];
        const taken = takeLinkToken(`${base}?${parts.join("&")}`);
        expect(taken).toEqual({ token: "v1.a.b", path: query.length === 0 ? base : `${base}?${query.join("&")}` });
        expect(takeLinkToken(taken?.path ?? "")).toBeUndefined();
      },
    ),
    seeded,
  );
});

test("link fuzz: cookies and origins of any shape are judged without a throw", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string(), (cookie, origin, host) => {
      expect(["string", "undefined"]).toContain(typeof cookieToken({ cookie }));
      const isForeign = isForeignOrigin({ origin, host });
      if (origin !== `http://${host}` && origin !== `https://${host}` && origin !== host) expect(isForeign).toBe(true);
    }),
    seeded,
  );
});
