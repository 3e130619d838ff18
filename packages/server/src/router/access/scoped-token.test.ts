import { generateKeyPairSync } from "node:crypto";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  mintScopedToken,
  mintSignedToken,
  parseKeyRing,
  type ScopedTokenKeys,
  tryVerifyScopedToken,
} from "./scoped-token.ts";

const secret = Buffer.from("0123456789abcdef0123456789abcdef");
const keys: ScopedTokenKeys = { secrets: [secret], publicKeys: new Map() };
const scope = { namespace: "ns", name: "box-a", expiresAtSeconds: 1_893_456_000 };
const vector =
  "v1.eyJucyI6Im5zIiwibmFtZSI6ImJveC1hIiwiZXhwIjoxODkzNDU2MDAwfQ.5B9jEjPUDZ8rB8Sp51Led6tnztRcPP6irxwuhF3nBGw";

test("scoped token: the published vector is minted and verified", () => {
  expect(mintScopedToken(scope, secret)).toBe(vector);
  expect(tryVerifyScopedToken(vector, keys, 0)).toEqual(scope);
});

test("scoped token: the second of expiry itself is refused", () => {
  expect(tryVerifyScopedToken(vector, keys, 1_893_455_999_999)).toEqual(scope);
  expect(tryVerifyScopedToken(vector, keys, 1_893_456_000_000)).toBeUndefined();
});

test("scoped token: a secret of the old key still verifies during rotation", () => {
  const rotated = { ...keys, secrets: [Buffer.alloc(32, 1), secret] };
  expect(tryVerifyScopedToken(vector, rotated, 0)).toEqual(scope);
});

test("scoped token: Ed25519 by key id; another id is refused", () => {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const ring = parseKeyRing(
    JSON.stringify({ keys: [{ kid: "k1", publicKey: publicKey.export({ type: "spki", format: "pem" }) }] }),
  );
  const withRing = { secrets: [], publicKeys: ring };
  expect(
    tryVerifyScopedToken(mintSignedToken({ ...scope, port: 3000 }, { kid: "k1", privateKey }), withRing, 0),
  ).toEqual({ ...scope, port: 3000 });
  expect(tryVerifyScopedToken(mintSignedToken(scope, { kid: "k2", privateKey }), withRing, 0)).toBeUndefined();
});

test("scoped token: no change of a single character verifies", () => {
  fc.assert(
    fc.property(
      fc.nat(vector.length - 1),
      fc.constantFrom("A", "B", "Z", "a", "z", "0", "9", "-", "_", "."),
      (index, character) => {
        const forged = vector.slice(0, index) + character + vector.slice(index + 1);
        // The last character of base64url carries unused bits: another spelling of the same bytes is refused as well.
        expect(forged === vector || tryVerifyScopedToken(forged, keys, 0) === undefined).toBe(true);
      },
    ),
  );
});

test("scoped token: whatever is sent, verification answers and never throws", () => {
  fc.assert(fc.property(fc.string(), (text) => tryVerifyScopedToken(text, keys, 0) === undefined));
});
