import { createHmac, generateKeyPairSync } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  mintScopedToken,
  mintSignedToken,
  parseKeyRing,
  type ScopedTokenKeys,
  type TokenScope,
  tryVerifyScopedToken,
} from "./scoped-token.ts";

const secret = Buffer.from("0123456789abcdef0123456789abcdef");
const keys: ScopedTokenKeys = { secrets: [secret], publicKeys: new Map() };
const scope = { namespace: "ns", name: "box-a", expiresAtSeconds: 1_893_456_000 };
const verify = (token: string, trusted: ScopedTokenKeys, nowMs: number, uid?: string): TokenScope | undefined =>
  tryVerifyScopedToken(token, { keys: trusted, nowMs, uidOf: () => uid });
const vector =
  "v1.eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoxODkzNDU2MDAwfQ.5B9jEjPUDZ8rB8Sp51Led6tnztRcPP6irxwuhF3nBGw";

test("scoped token: the published vector is minted and verified", () => {
  expect(mintScopedToken(scope, secret)).toBe(vector);
  expect(verify(vector, keys, 0)).toEqual(scope);
});

test("scoped token: the second of expiry itself is refused", () => {
  expect(verify(vector, keys, 1_893_455_999_999)).toEqual(scope);
  expect(verify(vector, keys, 1_893_456_000_000)).toBeUndefined();
});

test("scoped token: a secret of the old key still verifies during rotation", () => {
  const rotated = { ...keys, secrets: [Buffer.alloc(32, 1), secret] };
  expect(verify(vector, rotated, 0)).toEqual(scope);
});

test("scoped token: Ed25519 by key id; another id is refused", () => {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const ring = parseKeyRing(
    JSON.stringify({ keys: [{ kid: "k1", publicKey: publicKey.export({ type: "spki", format: "pem" }) }] }),
  );
  const withRing = { secrets: [], publicKeys: ring };
  expect(verify(mintSignedToken({ ...scope, port: 3000 }, { kid: "k1", privateKey }), withRing, 0)).toEqual({
    ...scope,
    port: 3000,
  });
  expect(verify(mintSignedToken(scope, { kid: "k2", privateKey }), withRing, 0)).toBeUndefined();
});

test("scoped token: no change of a single character verifies", () => {
  fc.assert(
    fc.property(
      fc.nat(vector.length - 1),
      fc.constantFrom("A", "B", "Z", "a", "z", "0", "9", "-", "_", "."),
      (index, character) => {
        const forged = vector.slice(0, index) + character + vector.slice(index + 1);
        // The last character of base64url carries unused bits: another spelling of the same bytes is refused as well.
        expect(forged === vector || verify(forged, keys, 0) === undefined).toBe(true);
      },
    ),
  );
});

test("scoped token: whatever is sent, verification answers and never throws", () => {
  fc.assert(fc.property(fc.string(), (text) => verify(text, keys, 0) === undefined));
});

test("scoped token: one for an incarnation is verified by the uid of today and does not contain it", () => {
  const uid = "5f2ab6ab-3f5a-4f4e-9d6b-6f3f7e0c1d2e";
  const token = mintScopedToken({ ...scope, uid }, secret);
  const text = token
    .split(".")
    .map((part) => Buffer.from(part, "base64url").toString("latin1"))
    .join();
  expect([token, text].join()).not.toContain(uid);
  expect(verify(token, keys, 0, uid)).toEqual({ ...scope, uid });
  for (const other of [undefined, "", "of-the-next-one"]) expect(verify(token, keys, 0, other)).toBeUndefined();
  // Neither version passes for the other.
  expect(verify(token.replace("v3.", "v1."), keys, 0, uid)).toBeUndefined();
  expect(verify(vector.replace("v1.", "v3."), keys, 0, uid)).toBeUndefined();
});

test("scoped token: a uid that somebody else's token claims is part of its scope", () => {
  const payload = Buffer.from(JSON.stringify({ ns: "ns", name: "box-a", exp: 1_893_456_000, uid: "u1" }));
  const encoded = payload.toString("base64url");
  const mac = createHmac("sha256", secret).update(`agent-sandbox/scoped-token/v1.${encoded}`).digest("base64url");
  expect(verify(`v1.${encoded}.${mac}`, keys, 0)).toEqual({ ...scope, uid: "u1" });
});
