import { expect, test } from "vitest";
import { mountOf, mountsBelow } from "./mounts.ts";

const table = String.raw`22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 8:2 / /srv/my\040disk rw,noexec shared:2 - ext4 /dev/sdb1 rw
41 40 0:50 / /srv/my\040disk/data/host/volumes/a rw - ext4 /dev/loop0 rw
42 40 0:51 / /srv/my\040disk/data-2/b ro - tmpfs tmpfs rw
`;

test("mountsBelow: points below a directory with a blank in its path are found, and those of a longer name are not", () => {
  expect(mountsBelow(["/srv/my disk/data"], table)).toEqual(["/srv/my disk/data/host/volumes/a"]);
  expect(mountsBelow(["/srv/my disk/data", "/srv/my disk/data-2"], table)).toHaveLength(2);
  expect(mountsBelow(["/srv/other"], table)).toEqual([]);
});

test("mountOf: the nearest mount above a path with a blank in it", () => {
  expect(mountOf("/srv/my disk/data", table)).toEqual({ point: "/srv/my disk", options: ["rw", "noexec"] });
  expect(mountOf("/srv/my disks", table)?.point).toBe("/");
});
