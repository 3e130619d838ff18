import type { ClaimEnvVar, Container, InjectionPolicy, PodSpec } from "@agent-sandbox/api";
import { type ClaimProblem, claimProblem } from "../claim-status/claim-problem.ts";

/** The pod spec with the claim's variables in it. A problem when the template does not allow them. */
export function withEnvironment(
  spec: PodSpec,
  env: readonly ClaimEnvVar[],
  policy: InjectionPolicy | undefined,
): PodSpec | ClaimProblem {
  if (env.length === 0) return spec;
  if (policy !== "Allowed" && policy !== "Overrides") {
    return rejected("environment variable injection is not allowed by the template policy");
  }
  const changed = structuredClone(spec);
  const containers = [...(changed.initContainers ?? []), ...changed.containers];
  const fallback = changed.containers[0]?.name ?? "";
  // Named entries come before defaulted ones, whatever their order in the claim.
  const ordered = [...env.filter((entry) => isNamed(entry)), ...env.filter((entry) => !isNamed(entry))];
  for (const entry of ordered) {
    const target = isNamed(entry) ? (entry.containerName ?? "") : fallback;
    const container = containers.find((candidate) => candidate.name === target);
    if (container === undefined) {
      return rejected(`target container "${target}" not found in template for environment variable "${entry.name}"`);
    }
    const refused = inject(container, entry, policy);
    if (refused !== undefined) return refused;
  }
  return changed;
}

function isNamed(entry: ClaimEnvVar): boolean {
  return entry.containerName !== undefined && entry.containerName !== "";
}

/** Sets one variable of a container, or says why the policy forbids it. */
function inject(
  container: Container,
  { name, value }: ClaimEnvVar,
  policy: "Allowed" | "Overrides",
): ClaimProblem | undefined {
  if (policy === "Allowed" && (container.envFrom ?? []).length > 0) {
    return rejected(
      `container "${container.name}" uses EnvFrom sources; Allowed policy cannot safely prevent overriding EnvFrom-provided variables`,
    );
  }
  container.env ??= [];
  const index = container.env.findIndex((present) => present.name === name);
  if (index < 0) {
    container.env.push({ name, value });
    return undefined;
  }
  if (policy === "Allowed") {
    return rejected(`environment variable override is not allowed by the template policy for variable "${name}"`);
  }
  container.env[index] = { name, value };
  return undefined;
}

function rejected(detail: string): ClaimProblem {
  return claimProblem("EnvVarsInjectionRejected", `environment variable injection rejected: ${detail}`);
}
