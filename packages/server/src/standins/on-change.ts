import type { KubeObject } from "@agent-sandbox/api";
import type { Informer } from "@agent-sandbox/kube";

/** Calls `wake` for every change of every object: add, update and delete alike, because a pass looks at the state alone. */
export function onChange<T extends KubeObject>(informer: Informer<T>, wake: (object: T) => void): void {
  informer.addHandler({
    onAdd: (object) => wake(object),
    onUpdate: (_old, object) => wake(object),
    onDelete: (last) => wake(last),
  });
}
