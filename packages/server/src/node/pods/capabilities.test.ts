import { expect, test } from "vitest";
import { allCapabilities, capabilitiesOf, defaultCapabilities } from "./capabilities.ts";

const without = (names: readonly string[], ...less: string[]): string[] =>
  names.filter((name) => !less.includes(name)).sort();

test.each<[string, Parameters<typeof capabilitiesOf>[0], string[]]>([
  ["nothing said: the default set", undefined, without(defaultCapabilities)],
  [
    "added and dropped by name",
    { add: ["NET_ADMIN"], drop: ["CHOWN"] },
    [...without(defaultCapabilities, "CAP_CHOWN"), "CAP_NET_ADMIN"].sort(),
  ],
  ["prefix and case do not matter", { add: ["cap_net_admin"], drop: ["ALL"] }, ["CAP_NET_ADMIN"]],
  ["all added", { add: ["ALL"] }, without(allCapabilities)],
  ["all added but one", { add: ["ALL"], drop: ["SYS_ADMIN"] }, without(allCapabilities, "CAP_SYS_ADMIN")],
  ["all dropped", { drop: ["ALL"] }, []],
  ["all added and all dropped: none", { add: ["ALL"], drop: ["ALL"] }, []],
  ["added and dropped: dropped", { add: ["CHOWN"], drop: ["CHOWN"] }, without(defaultCapabilities, "CAP_CHOWN")],
])("capabilitiesOf: %s", (_title, wish, expected) => {
  expect(capabilitiesOf(wish)).toEqual(expected);
});
