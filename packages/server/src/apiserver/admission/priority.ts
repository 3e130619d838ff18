import { forbidden, type Pod, type PriorityClass, priorityClasses } from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** The two classes that every cluster has, whether stored or not. */
const systemClasses: ReadonlyMap<string, number> = new Map([
  ["system-cluster-critical", 2_000_000_000],
  ["system-node-critical", 2_000_001_000],
]);

/** Turns a Pod's priority class into its number. */
export class Priority implements Admission {
  readonly name = "Priority";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return verb === "create" && group === "" && resource === "pods" && subresource === "";
  }

  async mutate({ object, name }: AdmissionAttributes): Promise<void> {
    const { spec } = object as Pod;
    if (spec === undefined) return;
    const found = await this.#classFor(spec.priorityClassName ?? "", name);
    if (spec.priority !== undefined && spec.priority !== (found.value ?? 0)) {
      const why = `the integer value of priority (${spec.priority}) must not be provided in pod spec; priority admission controller computed ${found.value ?? 0} from the given PriorityClass name`;
      throw forbidden({ resource: "pods", name }, why);
    }
    if (found.name !== "") spec.priorityClassName = found.name;
    spec.priority = found.value ?? 0;
    spec.preemptionPolicy ??= found.preemptionPolicy ?? "PreemptLowerPriority";
  }

  async #classFor(name: string, podName: string): Promise<{ name: string; value?: number; preemptionPolicy?: string }> {
    if (name === "") {
      const preferred = (await this.#reader.list(priorityClasses)).filter(
        ({ globalDefault }) => globalDefault === true,
      );
      const [lowest] = preferred.sort((a, b) => (a.value ?? 0) - (b.value ?? 0));
      return lowest === undefined ? { name: "" } : priorityOf(lowest);
    }
    const found = await this.#reader.get(priorityClasses, { name });
    if (found !== undefined) return priorityOf(found);
    const value = systemClasses.get(name);
    if (value !== undefined) return { name, value };
    throw forbidden({ resource: "pods", name: podName }, `no PriorityClass with name ${name} was found`);
  }
}

function priorityOf({ metadata, value, preemptionPolicy }: PriorityClass) {
  return { name: metadata.name, value: value ?? 0, ...(preemptionPolicy === undefined ? {} : { preemptionPolicy }) };
}
