import { expect, test } from "vitest";
import { NodeLedger } from "./node-ledger.ts";
import { amounts } from "./pod-requests.ts";

const read = (ledger: NodeLedger, node: string): Record<string, string> =>
  Object.fromEntries([...ledger.taken(node)].map(([name, amount]) => [name, amount.toString()]));

test("NodeLedger: several Pods: the sum of what they take, by node", () => {
  const ledger = new NodeLedger();
  ledger.book("a", "one", amounts({ cpu: "500m", memory: "1Gi" }));
  ledger.book("b", "one", amounts({ cpu: "250m" }));
  ledger.book("c", "two", amounts({ cpu: "1" }));
  expect(read(ledger, "one")).toEqual({ cpu: "750m", memory: "1Gi" });
  expect(read(ledger, "two")).toEqual({ cpu: "1" });
  expect(read(ledger, "three")).toEqual({});
});

test("NodeLedger: a Pod is booked again or leaves: it counts once, then not at all", () => {
  const ledger = new NodeLedger();
  ledger.book("a", "one", amounts({ cpu: "500m" }));
  ledger.book("a", "one", amounts({ cpu: "2" }));
  expect(read(ledger, "one")).toEqual({ cpu: "2" });
  ledger.book("a", "two", amounts({ cpu: "2" }));
  expect([read(ledger, "one"), read(ledger, "two")]).toEqual([{ cpu: "0" }, { cpu: "2" }]);
  ledger.free("a");
  ledger.free("a");
  expect(read(ledger, "two")).toEqual({ cpu: "0" });
});
