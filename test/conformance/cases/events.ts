import type { Json } from "../api-call.ts";
import { at } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const newEvents = "/apis/events.k8s.io/v1/namespaces/$NS/events";
const regarding = {
  apiVersion: "v1",
  kind: "Pod",
  namespace: "$NS",
  name: "p",
  uid: "00000000-0000-4000-8000-000000000000",
};

function coreEvent(change: Json = {}): Json {
  const when = "2024-01-01T00:00:00Z";
  const body = {
    reason: "Did",
    message: "it",
    type: "Normal",
    source: { component: "me" },
    firstTimestamp: when,
    lastTimestamp: when,
    count: 1,
  };
  return { apiVersion: "v1", kind: "Event", metadata: { name: "e" }, involvedObject: regarding, ...body, ...change };
}

function newEvent(change: Json = {}): Json {
  const body = {
    eventTime: "2024-01-01T00:00:00.000000Z",
    reason: "Did",
    note: "it",
    type: "Normal",
    action: "Do",
    reportingController: "example.com/me",
    reportingInstance: "me-1",
  };
  return { apiVersion: "events.k8s.io/v1", kind: "Event", metadata: { name: "e" }, regarding, ...body, ...change };
}

const quiet = (path: string, body: Json): Step => ({ do: `POST ${path}`, body, show: "nothing" });

const scripts: Script[] = [
  ["a core event", { do: `POST ${at.events}`, body: coreEvent() }],
  ["a new event", { do: `POST ${newEvents}`, body: newEvent() }],
  ["a core event read through the new group", quiet(at.events, coreEvent()), { do: `GET ${newEvents}/e` }],
  ["a new event read through the core group", quiet(newEvents, newEvent()), { do: `GET ${at.events}/e` }],
  ["a new event without a reason is refused", { do: `POST ${newEvents}`, body: newEvent({ reason: "" }) }],
  ["a new event without a time is refused", { do: `POST ${newEvents}`, body: newEvent({ eventTime: null }) }],
  [
    "a new event without a controller is refused",
    { do: `POST ${newEvents}`, body: newEvent({ reportingController: "" }) },
  ],
  ["a new event of an unknown type is refused", { do: `POST ${newEvents}`, body: newEvent({ type: "Odd" }) }],
  [
    "a core event about another namespace is refused",
    { do: `POST ${at.events}`, body: coreEvent({ involvedObject: { ...regarding, namespace: "other" } }) },
  ],
  [
    "events by the object they are about",
    quiet(at.events, coreEvent()),
    {
      do: `GET ${at.events}?fieldSelector=involvedObject.name%3Dp,involvedObject.kind%3DPod`,
      show: ({ items }) => items.length,
    },
    { do: `GET ${at.events}?fieldSelector=involvedObject.name%3Dq`, show: ({ items }) => items.length },
  ],
  [
    "events by reason and type",
    quiet(at.events, coreEvent()),
    { do: `GET ${at.events}?fieldSelector=reason%3DDid,type%3DNormal`, show: ({ items }) => items.length },
  ],
  [
    "new events by what they regard",
    quiet(newEvents, newEvent()),
    { do: `GET ${newEvents}?fieldSelector=regarding.name%3Dp`, show: ({ items }) => items.length },
  ],
  [
    "a count can be patched",
    quiet(at.events, coreEvent()),
    {
      do: `PATCH ${at.events}/e`,
      type: "application/strategic-merge-patch+json",
      body: { count: 2 },
      show: ({ count }) => count,
    },
  ],
];

/** Events of both groups. */
export const events: Group = {
  name: "events",
  cases: scripted("events", scripts),
  breakage: (_request, answer) =>
    Array.isArray(answer.body?.items) ? { ...answer, body: { ...answer.body, items: [] } } : answer,
};
