import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { addSystemUser } from "./system-user-files.ts";

let etc = "";
beforeEach(() => {
  etc = mkdtempSync(path.join(os.tmpdir(), "as-etc-"));
  writeFileSync(path.join(etc, "passwd"), "root:x:0:0:root:/root:/bin/bash\nother:x:999:997::/:/bin/sh\n", {
    mode: 0o644,
  });
  writeFileSync(path.join(etc, "group"), "root:x:0:\nwheel:x:998:");
  writeFileSync(path.join(etc, "shadow"), "root:*:1::::::\n", { mode: 0o640 });
});
afterEach(() => rmSync(etc, { recursive: true }));

const read = (name: string): string => readFileSync(path.join(etc, name), "utf8");

test("addSystemUser: takes the highest number that neither a user nor a group has, and keeps what was there", () => {
  addSystemUser("agent-sandbox-node", etc);
  expect(read("passwd")).toMatch(
    /^root:.*\nother:.*\nagent-sandbox-node:x:997:997::\/nonexistent:\/usr\/sbin\/nologin\n$/,
  );
  expect(read("group")).toBe("root:x:0:\nwheel:x:998:\nagent-sandbox-node:x:997:\n");
  expect(read("shadow")).toBe("root:*:1::::::\nagent-sandbox-node:!:::::::\n");
  expect(statSync(path.join(etc, "shadow")).mode & 0o777).toBe(0o640);
  // No file is made that the machine does not have, and no lock stays.
  expect(readdirSync(etc).sort()).toEqual(["group", "passwd", "shadow"]);
});

test("addSystemUser: a user that is there is left alone, and a lock is respected", () => {
  addSystemUser("a", etc);
  const before = read("passwd");
  addSystemUser("a", etc);
  expect(read("passwd")).toBe(before);
  writeFileSync(path.join(etc, "passwd.lock"), "");
  expect(() => addSystemUser("b", etc)).toThrow(/EEXIST/);
  // Of a process that lives: this one's parent.
  writeFileSync(path.join(etc, "passwd.lock"), `${process.ppid}\0`);
  expect(() => addSystemUser("b", etc)).toThrow(/EEXIST/);
  expect(read("passwd")).toBe(before);
  expect(readdirSync(etc).sort()).toEqual(["group", "passwd", "passwd.lock", "shadow"]);
});

test("addSystemUser: after a kill in the middle, the lock is taken over and what is missing is added", () => {
  // A child that has ended, and been waited for, has a number that no process has.
  const { pid } = spawnSync("true");
  writeFileSync(path.join(etc, "group"), "root:x:0:\nagent-sandbox-node:x:990:\n");
  writeFileSync(path.join(etc, "gshadow"), "root:*::\nagent-sandbox-node:!::\n");
  for (const holder of [pid, process.pid]) {
    writeFileSync(path.join(etc, "passwd"), "root:x:0:0:root:/root:/bin/bash\n");
    writeFileSync(path.join(etc, "passwd.lock"), String(holder));
    addSystemUser("agent-sandbox-node", etc);
    expect(read("passwd")).toMatch(/\nagent-sandbox-node:x:990:990:/);
    expect(read("group")).toBe("root:x:0:\nagent-sandbox-node:x:990:\n");
    expect(read("gshadow")).toBe("root:*::\nagent-sandbox-node:!::\n");
    expect(read("shadow")).toBe("root:*:1::::::\nagent-sandbox-node:!:::::::\n");
    expect(readdirSync(etc).sort()).toEqual(["group", "gshadow", "passwd", "shadow"]);
  }
});

test("addSystemUser: a group of that name whose number is another user's stays the user's group", () => {
  writeFileSync(path.join(etc, "group"), "a:x:999:\n");
  addSystemUser("a", etc);
  expect(read("passwd")).toMatch(/\na:x:998:999:/);
  expect(read("group")).toBe("a:x:999:\n");
});
