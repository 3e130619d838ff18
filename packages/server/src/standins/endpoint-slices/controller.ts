import {
  ignore,
  keyOf,
  namespacedKey,
  type Pod,
  parseKey,
  type Service,
  endpointSlices as sliceResource,
} from "@agent-sandbox/api";
import { type Controller, defineController, done } from "@agent-sandbox/kube";
import { byLabel, bySelector, byService, type Caches, labelKeys, selectorKey } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";
import { type Action, planEndpointSlices } from "./plan.ts";

/** Keeps the EndpointSlices of Services that have a selector. Keys are Services. */
export function endpointSlices(context: StandinContext, caches: Caches): Controller {
  const { services, pods, endpointSlices: slices } = caches;
  return defineController({
    name: "endpoint-slices",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [services, pods, slices],
    observe: (queue) => {
      const wakeMatching = (pod: Pod) => {
        for (const label of labelKeys(pod)) {
          for (const service of services.byIndex(bySelector, label))
            if (isSelected(service, pod)) queue.add(keyOf(service));
        }
      };
      onChange(services, (service) => queue.add(keyOf(service)));
      pods.addHandler({
        onAdd: wakeMatching,
        onDelete: wakeMatching,
        onUpdate: (old, pod) => {
          wakeMatching(old);
          wakeMatching(pod);
        },
      });
      onChange(slices, ({ metadata }) =>
        queue.add(namespacedKey(metadata.namespace, metadata.labels?.["kubernetes.io/service-name"] ?? "")),
      );
    },
    reconcile: async (key, signal) => {
      const service = services.get(key);
      if (service === undefined) return done;
      const { namespace = "" } = parseKey(key);
      const [label] = selectorKey(service) ?? [];
      const members = label === undefined ? [] : pods.byIndex(byLabel, label).filter((pod) => isSelected(service, pod));
      const actions = planEndpointSlices({ service, pods: members, slices: slices.byIndex(byService, key) });
      for (const action of actions) await applyAction(context, namespace, action, signal);
      return { kind: "done", actions: actions.length };
    },
  });
}

function isSelected({ spec }: Service, { metadata }: Pod): boolean {
  const pairs = Object.entries(spec?.selector ?? {});
  return pairs.length > 0 && pairs.every(([label, value]) => metadata.labels?.[label] === value);
}

async function applyAction(
  { client }: StandinContext,
  namespace: string,
  action: Action,
  signal: AbortSignal,
): Promise<void> {
  switch (action.do) {
    case "create":
      await client.create(sliceResource, action.slice, { signal }).catch(ignore("AlreadyExists"));
      return;
    case "update":
      await client.update(sliceResource, action.slice, { signal });
      return;
    case "delete":
      await client
        .delete(sliceResource, { namespace, name: action.name }, { uid: action.uid, signal })
        .catch(ignore("NotFound"));
      return;
    default:
      return action satisfies never;
  }
}
