import { expect, test } from "vitest";
import { FollowPaces } from "./follow-pace.ts";

const mebibyte = 1024 * 1024;

test("FollowPaces: the followers of one pod share a pace, those of another have their own", () => {
  const paces = new FollowPaces();
  const [first, second, other] = [paces.open("a"), paces.open("a"), paces.open("b")];
  expect(first.spend(mebibyte, 1_000)).toBe(250);
  expect(second.spend(mebibyte, 1_000)).toBe(500);
  expect(other.spend(mebibyte, 1_000)).toBe(250);
  expect(first.spend(mebibyte, 1_500)).toBe(250);
});

test("FollowPaces: a pod that is followed by no one leaves nothing behind", () => {
  const paces = new FollowPaces();
  const first = paces.open("a");
  first.spend(8 * mebibyte, 1_000);
  first[Symbol.dispose]();
  expect(paces.open("a").spend(mebibyte, 1_000)).toBe(250);
});
