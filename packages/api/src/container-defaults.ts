import type { Container } from "./builtin.gen.ts";
import type { Sandbox } from "./kinds.gen.ts";
import { annotationKeys } from "./labels.ts";

/**
 * What the first container of a Sandbox's Pod gets where its author left it open. A shell or an interpreter that finds its input closed ends at once,
 * and its Pod in a restart loop; with an input that stays open it waits. The end of the log of one that fails becomes its termination message, so that
 * its Sandbox can tell it.
 */
export function withContainerDefaults(container: Container): Container {
  const { command, args, stdin, terminationMessagePolicy } = container;
  const isOpen = isEmpty(command) && isEmpty(args) && stdin === undefined;
  return {
    ...container,
    ...(isOpen && { stdin: true }),
    ...(terminationMessagePolicy === undefined && { terminationMessagePolicy: "FallbackToLogsOnError" }),
  };
}

function isEmpty(words: readonly string[] | undefined): boolean {
  return words === undefined || words.length === 0;
}

/** Whether a Sandbox's containers are to be left as they are written: said on the Sandbox, or on its pod template. */
export function isLeftAsWritten({ metadata, spec }: Sandbox): boolean {
  const key = annotationKeys.containerDefaults;
  const said = metadata.annotations?.[key] ?? spec.podTemplate.metadata?.annotations?.[key];
  return said === "disabled";
}
