import type { ConfigMap, Event, EventsEvent } from "@agent-sandbox/api";
import { expect, test } from "vitest";
import { coreForm, type EventNote } from "./event-form.ts";
import { EventRecorder, type EventRecorderOptions } from "./event-recorder.ts";
import { createClient } from "./kube-client.ts";
import { FakeClock } from "./testing/fake-clock.ts";
import { partOf } from "./testing/part-of.ts";
import { type ScriptedAnswer, ScriptedTransport } from "./testing/scripted-transport.ts";

const regarding: ConfigMap = {
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name: "a", namespace: "ns", uid: "u", resourceVersion: "3" },
};
const note: EventNote = { regarding, type: "Warning", reason: "PodFailed", action: "CreatePod", note: "no space" };

function recorder(answers: readonly ScriptedAnswer[] = [], options: Partial<EventRecorderOptions> = {}) {
  const clock = new FakeClock(0);
  const ok = Array.from({ length: 20 }, () => ({ body: {} }));
  const transport = new ScriptedTransport([...answers, ...ok]);
  const errors: unknown[] = [];
  const events = new EventRecorder({
    client: createClient(transport),
    clock,
    reportingController: "test.dev/controller",
    reportingInstance: "host-1",
    random: () => 0.5,
    onError: (error) => errors.push(error),
    ...options,
  });
  const sent = (): Array<[string, EventsEvent]> =>
    transport.requests.map(({ method, body }) => [method, JSON.parse(String(body)) as EventsEvent]);
  return { clock, events, sent, errors };
}

test("EventRecorder: an event: is written with who, what and about whom", async () => {
  const { clock, events, sent } = recorder();
  events.record(note);
  await clock.settled({ busy: [() => !events.idle] });
  expect(sent()).toEqual([
    [
      "POST",
      {
        apiVersion: "events.k8s.io/v1",
        kind: "Event",
        metadata: { name: "a.08000", namespace: "ns" },
        eventTime: "1970-01-01T00:00:00.000000Z",
        type: "Warning",
        reason: "PodFailed",
        action: "CreatePod",
        note: "no space",
        regarding: { apiVersion: "v1", kind: "ConfigMap", name: "a", namespace: "ns", uid: "u", resourceVersion: "3" },
        reportingController: "test.dev/controller",
        reportingInstance: "host-1",
      },
    ],
  ]);
});

test("EventRecorder: repetitions: become a series, counted at once and then once a minute", async () => {
  const { clock, events, sent } = recorder();
  for (let count = 0; count < 5; count += 1) events.record({ ...note, note: `try ${count}` });
  await clock.settled();
  await clock.advance(60_000);
  expect(sent().map(([method, { series }]) => [method, series?.count])).toEqual([
    ["POST", undefined],
    // The second was noticed at once, and by the time it was written there were five.
    ["PATCH", 5],
  ]);
  events.record(note);
  await clock.advance(60_000);
  expect(sent().at(-1)?.[1].series?.count).toBe(6);
});

test("EventRecorder: a repetition after six minutes: is an event of its own", async () => {
  const { clock, events, sent } = recorder();
  events.record(note);
  await clock.advance(6 * 60_000 + 1);
  events.record(note);
  await clock.settled();
  expect(sent().map(([method]) => method)).toEqual(["POST", "POST"]);
});

test("EventRecorder: a series whose event has expired: starts anew", async () => {
  const missing = { status: 404, body: { kind: "Status", reason: "NotFound", code: 404 } };
  const { clock, events, sent, errors } = recorder([{ body: {} }, missing]);
  events.record(note);
  events.record(note);
  await clock.settled();
  events.record(note);
  await clock.settled();
  expect(sent().map(([method]) => method)).toEqual(["POST", "PATCH", "POST"]);
  expect(errors).toEqual([]);
});

test("EventRecorder: a server that refuses: is reported, and the caller never fails", async () => {
  const { clock, events, errors } = recorder([{ status: 403, body: { kind: "Status", reason: "Forbidden" } }]);
  events.record(note);
  await clock.settled();
  expect(errors).toMatchObject([{ reason: "Forbidden" }]);
});

test("EventRecorder: more events than its bound: the rest is dropped and reported once", async () => {
  const answers = Array.from({ length: 1_100 }, () => ({ body: {} }));
  const { clock, events, errors, sent } = recorder(answers);
  for (let count = 0; count < 1_100; count += 1) events.record({ ...note, reason: `Reason${count}` });
  await clock.settled();
  expect(errors.map(String)).toEqual([expect.stringMatching(/^Error: \d+ events dropped: 1000 waited/)]);
  const dropped = Number(/\d+/.exec(String(errors[0]))?.[0]);
  expect(dropped).toBeGreaterThan(0);
  expect(sent().length + dropped).toBe(1_100);
});

test("EventRecorder: an event that is slow to be written: others do not wait for it, its own count does", async () => {
  const { clock, events, sent } = recorder([{ hold: true }]);
  events.record(note);
  events.record(note);
  events.record({ ...note, reason: "Other" });
  await clock.settled();
  expect(sent().map(([method, { reason }]) => [method, reason])).toEqual([
    ["POST", "PodFailed"],
    ["POST", "Other"],
  ]);
});

test("EventRecorder: close: writes the counts that wait", async () => {
  const { clock, events, sent } = recorder();
  events.record(note);
  events.record(note);
  await clock.settled();
  events.record(note);
  await events.close();
  expect(sent().at(-1)?.[1].series?.count).toBe(3);
});

test("EventRecorder: the core form: is written as the kubelet does, and repetitions raise its count", async () => {
  const { clock, events, sent } = recorder([], { form: coreForm });
  const about: EventNote = { ...note, fieldPath: "spec.containers{main}" };
  events.record(about);
  await clock.settled();
  await clock.advance(2_500);
  events.record(about);
  events.record({ ...about, note: "no memory" });
  await clock.settled();
  const [[, first], ...others] = partOf<[[string, Event], ...Array<[string, Event]>]>(sent());
  expect(first).toEqual({
    apiVersion: "v1",
    kind: "Event",
    metadata: { name: "a.08000", namespace: "ns" },
    involvedObject: {
      apiVersion: "v1",
      kind: "ConfigMap",
      name: "a",
      namespace: "ns",
      uid: "u",
      resourceVersion: "3",
      fieldPath: "spec.containers{main}",
    },
    type: "Warning",
    reason: "PodFailed",
    message: "no space",
    source: { component: "test.dev/controller", host: "host-1" },
    reportingComponent: "test.dev/controller",
    reportingInstance: "host-1",
    firstTimestamp: "1970-01-01T00:00:00Z",
    lastTimestamp: "1970-01-01T00:00:00Z",
    count: 1,
  });
  expect(others).toMatchObject([
    ["POST", { message: "no memory" }],
    ["PATCH", { count: 2, lastTimestamp: "1970-01-01T00:00:02Z" }],
  ]);
});

test("EventRecorder: a lull: nothing is written before it is over, unless the recorder is closed", async () => {
  const { clock, events, sent } = recorder([], { lullMs: 100 });
  events.record(note);
  await clock.advance(99);
  expect(sent()).toEqual([]);
  await clock.advance(1);
  expect(sent()).toHaveLength(1);
  events.record({ ...note, reason: "Other" });
  await events.close();
  expect(sent()).toHaveLength(2);
});

test("EventRecorder: an object that something happens to without end: is told of 25 times, then seldom, and others are", async () => {
  const answers = Array.from({ length: 200 }, () => ({ body: {} }));
  const { clock, events, sent } = recorder(answers, { form: coreForm });
  const other = { ...regarding, metadata: { ...regarding.metadata, uid: "other" } };
  for (let count = 0; count < 1_000; count += 1) events.record({ ...note, note: `it says ${count}` });
  events.record({ ...note, regarding: other });
  events.record({ ...note, reason: "Started" });
  await clock.settled();
  expect(sent()).toHaveLength(27);
  await clock.advance(301_000);
  events.record({ ...note, note: "later" });
  await clock.settled();
  expect(sent()).toHaveLength(28);
});
