import { ignore, pods as podResource, sandboxClaims, sandboxes, services as serviceResource } from "@agent-sandbox/api";
import { type Controller, defineController, done } from "@agent-sandbox/kube";
import type { Caches } from "../caches.ts";
import { onChange } from "../on-change.ts";
import { type StandinContext, standinWorkers } from "../standin-context.ts";
import { type Action, planRouterService, routerPodName, routerServiceName } from "./plan.ts";

/** Where the router's parts live besides the namespaces that use it. */
export interface RouterServiceOptions {
  /** `agent-sandbox-system`. */
  readonly systemNamespace: string;
  /** The address under which sandboxes and the host reach the router. */
  readonly address: string;
}

/** Keeps `sandbox-router-svc` and its Pod where published clients look for them. Keys are namespace names. */
export function routerService(context: StandinContext, caches: Caches, options: RouterServiceOptions): Controller {
  const { namespaces, services, pods, everyObject } = caches;
  const { clock } = context;
  const usersIn = (namespace: string): number =>
    everyObject.countIn(sandboxes, namespace) + everyObject.countIn(sandboxClaims, namespace);
  return defineController({
    name: "router-service",
    clock: context.clock,
    telemetry: context.telemetry,
    workers: standinWorkers,
    caches: [namespaces, services, pods, everyObject],
    observe: (queue) => {
      onChange(namespaces, ({ metadata }) => queue.add(metadata.name));
      everyObject.onChange(({ resource, object }) => {
        if (resource.group !== sandboxes.group && resource.group !== sandboxClaims.group) return;
        // Only a namespace's first user and its last make a difference.
        const namespace = object.metadata.namespace ?? "";
        if (usersIn(namespace) <= 1) queue.add(namespace);
      });
      onChange(services, ({ metadata }) =>
        metadata.name === routerServiceName ? queue.add(metadata.namespace ?? "") : undefined,
      );
      onChange(pods, ({ metadata }) =>
        metadata.name === routerPodName ? queue.add(metadata.namespace ?? "") : undefined,
      );
    },
    reconcile: async (name, signal) => {
      const namespace = namespaces.get(name);
      if (namespace === undefined || namespace.metadata.deletionTimestamp !== undefined) return done;
      const actions = planRouterService({
        namespace: name,
        isWanted: name === options.systemNamespace || usersIn(name) > 0,
        service: services.get(`${name}/${routerServiceName}`),
        pod: pods.get(`${name}/${routerPodName}`),
        address: options.address,
        nowMs: clock.nowMs(),
      });
      for (const action of actions) await applyAction(context, name, action, signal);
      return { kind: "done", actions: actions.length };
    },
  });
}

async function applyAction(
  { client }: StandinContext,
  namespace: string,
  action: Action,
  signal: AbortSignal,
): Promise<void> {
  switch (action.do) {
    case "create-service":
      await client.create(serviceResource, action.service, { signal }).catch(ignore("AlreadyExists"));
      return;
    case "create-pod":
      await client.create(podResource, action.pod, { signal }).catch(ignore("AlreadyExists"));
      return;
    case "set-pod-status": {
      const patch = { type: "merge", body: { metadata: { uid: action.uid }, status: action.status } } as const;
      await client
        .patch(podResource, { namespace, name: routerPodName }, patch, { subresource: "status", signal })
        .catch(ignore("NotFound"));
      return;
    }
    default:
      return action satisfies never;
  }
}
