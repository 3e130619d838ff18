import { expect, test } from "vitest";
import { findCopiedRules } from "./homes.ts";

// biome-ignore lint/suspicious/noTemplateCurlyInString: the text of a template is what is looked for
const key = "pods.get(`${pod.metadata.namespace ?? ''}/${pod.metadata.name}`)";

test("findCopiedRules: finds a key, a condition's look-up and a label outside their home, and none in it", () => {
  expect(findCopiedRules("packages/server/src/a.ts", key)).toHaveLength(1);
  expect(
    findCopiedRules("packages/server/src/a.ts", 'x.conditions?.find(({ type }) => type === "Ready")'),
  ).toHaveLength(1);
  expect(findCopiedRules("packages/server/src/a.ts", '"agents.x-k8s.io/claim-uid"')).toHaveLength(1);
  expect(findCopiedRules("packages/api/src/object-key.ts", key)).toEqual([]);
});
