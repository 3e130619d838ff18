import { expect, test } from "vitest";
import { unwrittenBytes } from "./free-space.ts";

test.each([
  [
    "what is to be written and what is being written",
    "Cached:  9 kB\nDirty:              8052 kB\nWriteback:           308 kB\nWritebackTmp:  7 kB\n",
    8360 * 1024,
  ],
  ["a kernel that does not say", "MemTotal: 1 kB\n", 0],
])("unwrittenBytes: %s", (_name, meminfo, expected) => {
  expect(unwrittenBytes(meminfo)).toBe(expected);
});
