import fc from "fast-check";
import { expect, test } from "vitest";
import { AddressPool, formatAddress, parseAddressPlan, tryParseAddress } from "./address-pool.ts";

const operation = fc.record({
  owner: fc.integer({ min: 0, max: 9 }).map((number) => `owner-${number}`),
  act: fc.constantFrom("reserve", "confirm", "release", "wait") as fc.Arbitrary<
    "reserve" | "confirm" | "release" | "wait"
  >,
});

test("AddressPool: an address never has two owners", () => {
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 200 }), (operations) => {
      const pool = new AddressPool({ first: 1, last: 6 });
      const confirmed = new Map<string, string>();
      const reserved = new Map<string, string>();
      let nowMs = 0;
      for (const { owner, act } of operations) {
        const address = reserved.get(owner) ?? confirmed.get(owner);
        if (act === "wait") {
          nowMs += 120_000;
          reserved.clear();
        } else if (act === "reserve" && address === undefined) {
          const lent = pool.reserve(owner, nowMs);
          expect([...confirmed.values(), ...reserved.values()]).not.toContain(lent ?? "none");
          if (lent !== undefined) reserved.set(owner, lent);
        } else if (act === "confirm" && reserved.has(owner)) {
          pool.confirm(reserved.get(owner) ?? "", owner);
          confirmed.set(owner, reserved.get(owner) ?? "");
          reserved.delete(owner);
        } else if (act === "release" && confirmed.has(owner)) {
          pool.release(confirmed.get(owner) ?? "", owner);
          confirmed.delete(owner);
        }
      }
    }),
  );
});

test("AddressPool: a released address rests while others are free", () => {
  const pool = new AddressPool({ first: 1, last: 3 });
  const first = pool.reserve("a", 0) ?? "";
  pool.release(first, "a");
  expect(pool.reserve("b", 0)).not.toBe(first);
  expect(pool.reserve("c", 0)).not.toBe(first);
  expect(pool.reserve("d", 0)).toBe(first);
  expect(pool.reserve("e", 0)).toBeUndefined();
});

test("AddressPool: what is kept for an owner is his alone, also after he has given it back, until it is kept no longer", () => {
  const pool = new AddressPool({ first: 1, last: 2 });
  const first = pool.reserve("a", 0) ?? "";
  pool.keep(first, "a");
  pool.release(first, "a");
  const second = pool.reserve("b", 0) ?? "";
  expect(second).not.toBe(first);
  expect(pool.reserve("c", 0)).toBeUndefined();
  expect(pool.reserveExactly(first, "c", 0)).toBe(false);
  expect(pool.reserve("a", 0)).toBe(first);
  pool.release(first, "a");
  pool.unkeep("a");
  expect(pool.reserve("c", 0)).toBe(first);
  pool.keep("0.0.0.9", "a");
  expect(pool.reserve("a", 0)).toBeUndefined();
});

test("AddressPool: a chosen address is given once, and never outside the range", () => {
  const { services } = parseAddressPlan("10.200.0.0/16");
  const pool = new AddressPool(services);
  expect(pool.reserveExactly("10.200.224.9", "a", 0)).toBe(true);
  expect(pool.reserveExactly("10.200.224.9", "a", 0)).toBe(true);
  expect(pool.reserveExactly("10.200.224.9", "b", 0)).toBe(false);
  expect(pool.reserveExactly("10.200.1.9", "b", 0)).toBe(false);
});

test("parseAddressPlan: sandboxes and services do not overlap, and only a /16 will do", () => {
  const { sandboxes, services } = parseAddressPlan("10.201.0.0/16");
  expect([formatAddress(sandboxes.first), formatAddress(sandboxes.last)]).toEqual(["10.201.1.0", "10.201.223.255"]);
  expect([formatAddress(services.first), formatAddress(services.last)]).toEqual(["10.201.224.1", "10.201.239.254"]);
  expect(() => parseAddressPlan("10.201.0.0/24")).toThrow("is not a /16");
  expect(tryParseAddress("10.0.0.256")).toBeUndefined();
});
