import type { Json } from "../api-call.ts";
import { patchTypes } from "../api-call.ts";
import { at, configMap, pod, widget } from "../objects.ts";
import { type Script, type Step, scripted } from "../scripted.ts";
import type { Group } from "../suite.ts";

const maps = at.configMaps;
const quiet = (path: string, body: Json): Step => ({ do: `POST ${path}`, body, show: "nothing" });
const stray = (body: Json): Json => ({ ...body, spec: { ...body.spec, stray: 1 } });
const doubled = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"1","k":"2"}}';
const warned = (body: Json): Json => body.kind;

const scripts: Script[] = [
  [
    "dry run: create stores nothing",
    { do: `POST ${maps}?dryRun=All`, body: configMap("a") },
    { do: `GET ${maps}/a`, show: (b) => b },
  ],
  ["dry run: create still validates", { do: `POST ${maps}?dryRun=All`, body: configMap("Bad") }],
  [
    "dry run: update stores nothing",
    quiet(maps, configMap("a")),
    { do: `PUT ${maps}/a?dryRun=All`, body: configMap("a", { other: "1" }), show: ({ data }) => data },
    { do: `GET ${maps}/a`, show: ({ data }) => data },
  ],
  [
    "dry run: patch stores nothing",
    quiet(maps, configMap("a")),
    {
      do: `PATCH ${maps}/a?dryRun=All`,
      type: patchTypes.merge,
      body: { data: { other: "1" } },
      show: ({ data }) => data,
    },
    { do: `GET ${maps}/a`, show: ({ data }) => data },
  ],
  [
    "dry run: apply stores nothing",
    {
      do: `PATCH ${maps}/a?dryRun=All&fieldManager=m`,
      type: patchTypes.apply,
      body: configMap("a"),
      show: ({ data }) => data,
    },
    { do: `GET ${maps}/a`, show: (b) => b },
  ],
  ["dry run: an unknown value is refused", { do: `POST ${maps}?dryRun=Some`, body: configMap("a") }],
  [
    "dry run: generateName gives a name",
    {
      do: `POST ${maps}?dryRun=All`,
      body: { apiVersion: "v1", kind: "ConfigMap", metadata: { generateName: "generated-" } },
      show: ({ metadata }) => metadata.name,
    },
  ],
  [
    "field validation: unknown fields pass by default with a warning",
    { do: `POST ${at.pods}`, body: stray(pod("a")), show: warned },
  ],
  [
    "field validation: Strict refuses unknown fields",
    { do: `POST ${at.pods}?fieldValidation=Strict`, body: stray(pod("a")) },
  ],
  ["field validation: Warn warns", { do: `POST ${at.pods}?fieldValidation=Warn`, body: stray(pod("a")), show: warned }],
  [
    "field validation: Ignore is silent",
    { do: `POST ${at.pods}?fieldValidation=Ignore`, body: stray(pod("a")), show: warned },
  ],
  [
    "field validation: an unknown value is refused",
    { do: `POST ${at.pods}?fieldValidation=Sometimes`, body: pod("a") },
  ],
  ["field validation: Strict refuses doubled keys", { do: `POST ${maps}?fieldValidation=Strict`, body: doubled }],
  [
    "field validation: doubled keys warn",
    { do: `POST ${maps}?fieldValidation=Warn`, body: doubled, show: ({ data }) => data },
  ],
  [
    "field validation: Strict refuses unknown fields of a custom kind",
    {
      do: `POST ${at.widgets}?fieldValidation=Strict`,
      body: stray(widget("a", { size: 1, nested: { must: "x", deep: 1 } })),
    },
  ],
  [
    "field validation: Warn of a custom kind",
    { do: `POST ${at.widgets}?fieldValidation=Warn`, body: stray(widget("a", { size: 1 })), show: ({ spec }) => spec },
  ],
  [
    "field validation: Strict in a merge patch",
    quiet(at.pods, pod("a")),
    {
      do: `PATCH ${at.pods}/a?fieldValidation=Strict`,
      type: patchTypes.merge,
      body: { spec: { stray: 1 } },
      loose: true,
    },
  ],
  [
    "field validation: Strict in a strategic patch",
    quiet(at.pods, pod("a")),
    {
      do: `PATCH ${at.pods}/a?fieldValidation=Strict`,
      type: patchTypes.strategic,
      body: { spec: { stray: 1 } },
      loose: true,
    },
  ],
  [
    "field validation: Strict in a JSON patch of a custom kind",
    quiet(at.widgets, widget("a", { size: 1 })),
    {
      do: `PATCH ${at.widgets}/a?fieldValidation=Strict`,
      type: patchTypes.json,
      body: [{ op: "add", path: "/spec/stray", value: 1 }],
      loose: true,
    },
  ],
  [
    "field validation: Strict names metadata",
    { do: `POST ${at.widgets}?fieldValidation=Strict`, body: { ...widget("a"), metadata: { name: "a", stray: 1 } } },
  ],
];

/** Dry run and field validation. */
export const rehearsal: Group = {
  name: "rehearsal",
  cases: scripted("rehearsal", scripts),
  breakage: (request, answer) =>
    request.path.includes("fieldValidation=Strict") && answer.status === 400 ? { ...answer, status: 201 } : answer,
};
