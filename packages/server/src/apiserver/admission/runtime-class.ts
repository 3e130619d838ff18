import { isDeepStrictEqual } from "node:util";
import { forbidden, type Pod, runtimeClasses } from "@agent-sandbox/api";
import type { ObjectReader } from "../auth/object-reader.ts";
import type { Admission, AdmissionAttributes } from "./admission.ts";

/** Writes a RuntimeClass's overhead and scheduling rules into the Pod, so that scheduler and quota count it without reading the class. */
export class RuntimeClassAdmission implements Admission {
  readonly name = "RuntimeClass";
  readonly #reader: ObjectReader;

  constructor(reader: ObjectReader) {
    this.#reader = reader;
  }

  handles({ verb, group, resource, subresource }: AdmissionAttributes): boolean {
    return verb === "create" && group === "" && resource === "pods" && subresource === "";
  }

  async mutate({ object, name: podName }: AdmissionAttributes): Promise<void> {
    const { spec } = object as Pod;
    const className = spec?.runtimeClassName;
    if (spec === undefined || className === undefined || className === "") {
      if (spec?.overhead !== undefined)
        throw forbiddenPod(
          podName,
          "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        );
      return;
    }
    const found = await this.#reader.get(runtimeClasses, { name: className });
    if (found === undefined) throw forbiddenPod(podName, `pod rejected: RuntimeClass "${className}" not found`);
    const overhead = found.overhead?.podFixed;
    if (spec.overhead !== undefined && !isDeepStrictEqual(spec.overhead, overhead)) {
      throw forbiddenPod(podName, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
    }
    if (overhead !== undefined) spec.overhead = { ...overhead };
    if (found.scheduling?.nodeSelector !== undefined)
      spec.nodeSelector = { ...spec.nodeSelector, ...found.scheduling.nodeSelector };
    if (found.scheduling?.tolerations !== undefined)
      spec.tolerations = [...(spec.tolerations ?? []), ...found.scheduling.tolerations];
  }
}

function forbiddenPod(name: string, why: string): Error {
  return forbidden({ resource: "pods", name }, why);
}
