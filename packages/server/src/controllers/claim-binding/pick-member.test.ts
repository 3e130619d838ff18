import { describe, expect, test } from "vitest";
import { type Candidate, pickMember, type Readiness } from "./pick-member.ts";

const member = (name: string, node = "", bornMs = 0, readiness: Readiness = "ready"): Candidate => ({
  key: `default/${name}`,
  node,
  bornMs,
  readiness,
});

describe("pickMember", () => {
  const rows: [string, Candidate[], string | undefined][] = [
    ["no member: none", [], undefined],
    ["one: that one", [member("a")], "a"],
    ["R21 one without an address is never taken", [member("a", "", 0, "pending")], undefined],
    ["R25 Ready before one that only has an address", [member("a", "n", 0, "networked"), member("b", "n", 9)], "b"],
    [
      "one that only has an address before none",
      [member("a", "", 0, "pending"), member("b", "n", 9, "networked")],
      "b",
    ],
    ["R25 the node with the most members", [member("a", "n1", 0), member("b", "n2", 5), member("c", "n2", 3)], "c"],
    ["R25 the oldest of that node", [member("a", "n", 5), member("b", "n", 3), member("c", "n", 4)], "b"],
    ["of one age the first by name", [member("b", "n"), member("a", "n")], "a"],
    ["two nodes with as many: the oldest of both", [member("a", "n1", 2), member("b", "n2", 1)], "b"],
    ["a node before none", [member("a", "", 0), member("b", "n", 9)], "b"],
    ["no node anywhere: the oldest", [member("a", "", 2), member("b", "", 1)], "b"],
    [
      "members that are not Ready do not make a node fuller",
      [member("a", "n1", 9), member("b", "n2", 1, "networked"), member("c", "n2", 2, "pending")],
      "a",
    ],
  ];
  test.each(rows)("pickMember: %s", (_title, candidates, expected) => {
    expect(pickMember(candidates)?.key).toBe(expected === undefined ? undefined : `default/${expected}`);
    expect(pickMember([...candidates].reverse())?.key).toBe(expected === undefined ? undefined : `default/${expected}`);
  });
  test("pickMember: R25 four claims one after the other spread over the nodes", () => {
    let left = [member("a", "n1", 0), member("b", "n2", 5), member("c", "n2", 3), member("d", "n2", 4)];
    const taken: string[] = [];
    for (let next = pickMember(left); next !== undefined; next = pickMember(left)) {
      const { key } = next;
      taken.push(key);
      left = left.filter((each) => each.key !== key);
    }
    expect(taken).toEqual(["default/c", "default/d", "default/a", "default/b"]);
  });
});
