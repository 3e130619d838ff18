import { patchTypes } from "../api-call.ts";
import { at, configMap, pod, sandbox, service, widget } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const type = patchTypes.apply;

function apply(path: string, body: unknown, manager = "one", query = ""): Step {
  return { do: `PATCH ${path}/a?fieldManager=${manager}${query}`, type, body };
}

const quiet = (step: Step): Step => ({ ...step, show: "nothing" });
const maps = at.configMaps;
const twoPorts = service("a", {
  ports: [
    { name: "x", port: 80 },
    { name: "y", port: 81 },
  ],
});

const scripts: Script[] = [
  ["creates what is not there", apply(maps, configMap("a"))],
  ["needs a field manager", { do: `PATCH ${maps}/a`, type, body: configMap("a") }],
  ["repeated changes nothing", quiet(apply(maps, configMap("a"))), apply(maps, configMap("a"))],
  ["changes its own field", quiet(apply(maps, configMap("a"))), apply(maps, configMap("a", { key: "2" }))],
  [
    "removes what it no longer names",
    quiet(apply(maps, configMap("a", { x: "1", y: "2" }))),
    apply(maps, configMap("a", { y: "2" })),
  ],
  [
    "of another manager's field is a Conflict",
    quiet(apply(maps, configMap("a"))),
    apply(maps, configMap("a", { key: "2" }), "two"),
  ],
  [
    "names every field in conflict",
    quiet(apply(maps, configMap("a", { x: "1", y: "1" }))),
    apply(maps, configMap("a", { x: "2", y: "2" }), "two"),
  ],
  [
    "with force takes the field",
    quiet(apply(maps, configMap("a"))),
    apply(maps, configMap("a", { key: "2" }), "two", "&force=true"),
  ],
  ["of the same value shares the field", quiet(apply(maps, configMap("a"))), apply(maps, configMap("a"), "two")],
  [
    "leaves other managers' fields",
    quiet(apply(maps, configMap("a"))),
    apply(maps, configMap("a", { other: "1" }), "two"),
  ],
  [
    "shared field survives the first leaving",
    quiet(apply(maps, configMap("a"))),
    quiet(apply(maps, configMap("a"), "two")),
    apply(maps, configMap("a", {})),
  ],
  [
    "over an update is a Conflict",
    quiet({ do: `POST ${maps}?fieldManager=writer`, body: configMap("a") }),
    apply(maps, configMap("a", { key: "2" })),
  ],
  [
    "over an update with force",
    quiet({ do: `POST ${maps}?fieldManager=writer`, body: configMap("a") }),
    apply(maps, configMap("a", { key: "2" }), "one", "&force=true"),
  ],
  [
    "an update takes the field",
    quiet(apply(maps, configMap("a"))),
    { do: `PUT ${maps}/a?fieldManager=writer`, body: configMap("a", { key: "3" }) },
  ],
  [
    "with managedFields is refused",
    apply(
      maps,
      configMap(
        "a",
        {},
        {
          managedFields: [{ manager: "x", operation: "Apply", apiVersion: "v1", fieldsType: "FieldsV1", fieldsV1: {} }],
        },
      ),
    ),
  ],
  ["under another name is refused", apply(maps, configMap("b"))],
  ["of another kind is refused", { ...apply(maps, { ...configMap("a"), kind: "Secret" }), loose: true }],
  ["of broken YAML is refused", { ...apply(maps, ": :\n- x"), loose: true }],
  ["of YAML", { ...apply(maps, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n") }],
  ["of an unknown field is refused", { ...apply(maps, { ...configMap("a"), nonsense: 1 }), loose: true }],
  [
    "merges associative lists by key",
    quiet(apply(at.services, twoPorts)),
    apply(at.services, service("a", { ports: [{ name: "z", port: 82 }] }), "two"),
  ],
  [
    "removes its own element of a list",
    quiet(apply(at.services, twoPorts)),
    apply(at.services, service("a", { ports: [{ name: "y", port: 81 }] })),
  ],
  [
    "owns containers by name",
    apply(at.pods, pod("a", { containers: [{ name: "main", image: "x:1", env: [{ name: "E", value: "1" }] }] })),
  ],
  [
    "duplicate keys in a list are refused",
    {
      ...apply(
        at.pods,
        pod("a", {
          containers: [
            { name: "m", image: "x:1" },
            { name: "m", image: "y:1" },
          ],
        }),
      ),
      loose: true,
    },
  ],
  [
    "adds a finalizer to a set",
    quiet(apply(maps, configMap("a", {}, { finalizers: ["example.com/a"] }))),
    apply(maps, configMap("a", {}, { finalizers: ["example.com/b"] }), "two"),
  ],
  ["of a custom object", apply(at.widgets, widget("a", { size: 1, tags: ["x"], parts: [{ name: "p", count: 1 }] }))],
  [
    "of a custom list map merges by key",
    quiet(apply(at.widgets, widget("a", { parts: [{ name: "p", count: 1 }] }))),
    apply(at.widgets, widget("a", { parts: [{ name: "q", count: 2 }] }), "two"),
  ],
  [
    "of a custom atomic list is a Conflict",
    quiet(apply(at.widgets, widget("a", { tags: ["x"] }))),
    apply(at.widgets, widget("a", { tags: ["y"] }), "two"),
  ],
  ["of an invalid custom object is refused", apply(at.widgets, widget("a", { size: -1 }))],
  ["of a Sandbox", apply(at.sandboxes, sandbox("a"))],
  [
    "of a status belongs to the subresource",
    quiet(apply(at.widgets, widget("a", { size: 1 }))),
    {
      do: `PATCH ${at.widgets}/a/status?fieldManager=two`,
      type,
      body: { apiVersion: "conformance.test/v1", kind: "Widget", metadata: { name: "a" }, status: { phase: "On" } },
    },
  ],
  [
    "with a stale version is a Conflict",
    quiet(apply(maps, configMap("a"))),
    apply(maps, configMap("a", {}, { resourceVersion: "1" })),
  ],
  ["of nothing with a version is a Conflict", apply(maps, configMap("a", {}, { resourceVersion: "1" }))],
  [
    "force on another patch type is refused",
    quiet(apply(maps, configMap("a"))),
    { do: `PATCH ${maps}/a?force=true`, type: patchTypes.merge, body: {} },
  ],
  [
    "managers of updates are told apart",
    quiet({ do: `POST ${maps}?fieldManager=w1`, body: configMap("a") }),
    { do: `PATCH ${maps}/a?fieldManager=w2`, type: patchTypes.merge, body: { data: { more: "1" } } },
  ],
  [
    "managedFields can be cleared",
    quiet(apply(maps, configMap("a"))),
    { do: `PATCH ${maps}/a`, type: patchTypes.merge, body: { metadata: { managedFields: [{}] } } },
  ],
  ["field manager too long is refused", apply(maps, configMap("a"), "x".repeat(129))],
];

/** Server-side apply. */
export const serverSideApply: Group = {
  name: "apply",
  cases: scripted("apply", scripts),
  breakage: (_request, answer) => (answer.status === 409 ? { ...answer, status: 200 } : answer),
};
