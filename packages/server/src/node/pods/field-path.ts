import type { Container, Pod } from "@agent-sandbox/api";

/** `spec.containers{name}`, as events name the part of a pod they are about. */
export function fieldPathOf(pod: Pod, container: Container): string {
  const isInit = pod.spec?.initContainers?.some(({ name }) => name === container.name) === true;
  return `spec.${isInit ? "initContainers" : "containers"}{${container.name}}`;
}
