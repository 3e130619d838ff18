import type { MemoryUse } from "@agent-sandbox/api";
import { FakeClock } from "@agent-sandbox/kube";
import { expect, test } from "vitest";
import { FakeHost } from "../host/fake-host.ts";
import { MemoryUses } from "./memory-uses.ts";

const mib = 1024 * 1024;
const owner = { uid: "u", cgroup: "group" };
const { signal } = new AbortController();

async function openUses() {
  const [host, clock] = [new FakeHost(), new FakeClock()];
  await host.ensureCgroup({ id: owner.cgroup, cpuShares: 1024, pids: 10 });
  host.cgroups.sharedBytes = 3 * mib;
  const uses = new MemoryUses(host, clock);
  const look = (residentMib: number, said: MemoryUse | undefined, isStill = false) => {
    host.cgroups.workingSetBytes = residentMib * mib;
    return uses.look(owner, { said, isStill }, signal);
  };
  return { host, clock, uses, look };
}

test("MemoryUses: the first look is news, a change by less than a tenth is none", async () => {
  const { uses, look } = await openUses();
  expect(await look(40, undefined)).toBe(true);
  const said = { residentBytes: 40 * mib, sharedBytes: 3 * mib };
  expect(uses.of("u")).toEqual(said);
  expect(await look(43, said)).toBe(false);
  expect(uses.of("u")).toEqual(said);
  expect(await look(44, said)).toBe(true);
  expect(uses.of("u")?.residentBytes).toBe(44 * mib);
});

test("MemoryUses: an agent that was restarted goes by what the pod says", async () => {
  const { uses, look } = await openUses();
  expect(await look(41, { residentBytes: 40 * mib })).toBe(false);
  expect(uses.of("u")).toBeUndefined();
});

test("MemoryUses: a look is good for a minute", async () => {
  const { uses, look, clock } = await openUses();
  expect(uses.isDue("u")).toBe(true);
  await look(40, undefined);
  expect(uses.isDue("u")).toBe(false);
  await clock.advance(60_000);
  expect(uses.isDue("u")).toBe(true);
});

test("MemoryUses: where the machine cannot tell, or the group is gone, nothing is said", async () => {
  const { host, uses, look } = await openUses();
  expect(await look(0, undefined)).toBe(false);
  await host.removeCgroup({ id: owner.cgroup });
  expect(await look(40, undefined)).toBe(false);
  expect(uses.of("u")).toBeUndefined();
});

test("MemoryUses: what was resident before the first rung stays to the second, and goes with the wake", async () => {
  const { host, uses, look } = await openUses();
  await look(40, undefined);
  host.cgroups.workingSetBytes = 30 * mib;
  await uses.slept(owner, { said: undefined, beforeBytes: 42 * mib }, signal);
  const frozen = { residentBytes: 30 * mib, sharedBytes: 3 * mib, beforeSleepBytes: 42 * mib };
  expect(uses.of("u")).toEqual(frozen);
  expect(await look(20, frozen, true)).toBe(true);
  expect(uses.of("u")).toEqual({ ...frozen, residentBytes: 20 * mib });
  await uses.slept(owner, { said: frozen, beforeBytes: 20 * mib }, signal);
  expect(uses.of("u")?.beforeSleepBytes).toBe(42 * mib);
  uses.woke(owner, frozen);
  expect(uses.of("u")).toEqual({ residentBytes: 20 * mib, sharedBytes: 3 * mib });
  expect(uses.isDue("u")).toBe(true);
});

test("MemoryUses: a sleep that ended while no agent ran is corrected at the next look", async () => {
  const { uses, look } = await openUses();
  expect(await look(40, { residentBytes: 40 * mib, beforeSleepBytes: 50 * mib })).toBe(true);
  expect(uses.of("u")).toEqual({ residentBytes: 40 * mib, sharedBytes: 3 * mib });
});

test("MemoryUses: a look during which the pod fell asleep is not used", async () => {
  const { host, uses, look } = await openUses();
  const read = host.cgroupStats.bind(host);
  let isSlept = false;
  host.cgroupStats = async (request) => {
    if (!isSlept) {
      isSlept = true;
      await uses.slept(owner, { said: undefined, beforeBytes: 50 * mib }, signal);
    }
    return read(request);
  };
  expect(await look(40, undefined)).toBe(false);
  expect(uses.of("u")).toEqual({ residentBytes: 40 * mib, beforeSleepBytes: 50 * mib });
});
