// The templates of the Helm chart, out of the plain manifests: what a value can change is put in its place, everything else is printed as it is.
import { readFileSync } from "node:fs";
import path from "node:path";
import { parseAllDocuments, stringify } from "yaml";
import { deployFiles } from "../deploy-files.ts";

const systemNamespace = "agent-sandbox-system";
const controllerName = "agent-sandbox-controller";
const webhookServiceName = "agent-sandbox-webhook-service";

/** Flags of the controller that are values of their own, as the reference's chart names them; each is passed only if it is set. */
const flagValues = [
  "clusterDomain",
  "leaderElectionNamespace",
  "enableTracing",
  "enablePprof",
  "enablePprofDebug",
  "pprofBlockProfileRate",
  "pprofMutexProfileFraction",
  "kubeApiQps",
  "kubeApiBurst",
  "sandboxConcurrentWorkers",
  "sandboxClaimConcurrentWorkers",
  "sandboxWarmPoolConcurrentWorkers",
  "sandboxTemplateConcurrentWorkers",
  "sandboxWarmPoolMaxBatchSize",
  "sandboxWarmPoolReadinessGracePeriod",
  "sandboxWarmPoolUnschedulableRecheckInterval",
  "enableWarmPoolEviction",
];

/** As much of an object as is changed here. */
interface Manifest {
  kind: string;
  metadata: { name: string; labels?: Record<string, string> };
  roleRef?: { name: string };
}

interface Deployment extends Manifest {
  spec: {
    replicas: unknown;
    template: {
      metadata: { labels: Record<string, unknown>; annotations?: Record<string, unknown> };
      spec: Record<string, unknown> & { containers: [Record<string, unknown>] };
    };
  };
}

/** A line of the template: `key` alone for text of its own, with a value where the plain manifest's stays unless another is given. */
type Block = { readonly text: string } | { readonly key: string; readonly value: string; readonly plain: unknown };

/** The chart's templates by path below deploy/chart. */
export function chartTemplates(rootDir: string): Map<string, string> {
  return new Map(
    deployFiles().map((file) => {
      const text = readFileSync(path.join(rootDir, "deploy/kubernetes", `${file}.yaml`), "utf8");
      const objects = parseAllDocuments(text).map((document) => document.toJS() as Manifest);
      const head = `{{- /* Written by npm run generate from deploy/kubernetes/${file}.yaml. */ -}}\n`;
      return [`templates/${file}.yaml`, head + objects.map((object) => new Printer().print(object)).join("")];
    }),
  );
}

class Printer {
  readonly #blocks: Block[] = [];

  print(object: Manifest): string {
    if (object.kind === "Deployment") this.#change(object as Deployment);
    if (object.kind === "Service") this.#nameService(object);
    const text = stringify(namespaced(object), { lineWidth: 0, aliasDuplicateObjects: false });
    const filled = text
      .replaceAll(
        /^( *)((?:- )?)"?@@block(\d+)@@"?(?:: null)?\n/gm,
        (_line, indent: string, dash: string, index: string) =>
          printBlock(this.#blocks[Number(index)] as Block, indent + dash.replace(/./g, " ").slice(2)),
      )
      .replaceAll(/"?@@(.+?)@@"?/g, "{{ $1 }}");
    const condition = conditionOf(object);
    const document = `---\n${filled}`;
    return condition === undefined ? document : `{{- if ${condition} }}\n${document}{{- end }}\n`;
  }

  #change(deployment: Deployment): void {
    const { template } = deployment.spec;
    const container = template.spec.containers[0];
    const isController = deployment.metadata.name === controllerName;
    deployment.spec.replicas = isController ? "@@.Values.replicaCount@@" : "@@.Values.router.replicaCount@@";
    container["image"] = '@@include "agent-sandbox.image" .@@';
    container["imagePullPolicy"] = "@@.Values.image.pullPolicy@@";
    template.spec = this.#withBlocks(template.spec, [optional("imagePullSecrets")]) as typeof template.spec;
    if (!isController) return;
    container["args"] = this.#controllerArgs(container["args"] as string[]);
    template.spec.containers[0] = this.#replaceable(container, {
      resources: "resources",
      securityContext: "containerSecurityContext",
    });
    const scheduling = ["nodeSelector", "tolerations", "affinity"].map(optional);
    const podSpec = this.#replaceable(template.spec, { securityContext: "podSecurityContext" });
    template.spec = this.#withBlocks(podSpec, scheduling) as typeof template.spec;
    // A label that the selector looks for must stay what it is.
    const labels =
      '{{- with omit .Values.podLabels "app" "app.kubernetes.io/name" "app.kubernetes.io/part-of" }}\n{{- toYaml . | nindent 8 }}\n{{- end }}';
    template.metadata.labels = this.#withBlocks(template.metadata.labels, [{ text: labels }]);
    template.metadata = this.#withBlocks(template.metadata, [
      optionalAt("annotations", "podAnnotations"),
    ]) as typeof template.metadata;
  }

  #controllerArgs(plain: readonly string[]): string[] {
    const known = ["controller", "--leader-elect=true", "--extensions", `--webhook-namespace=${systemNamespace}`];
    if (plain.join(" ") !== known.join(" "))
      throw new Error(`the chart does not know the controller's arguments: ${plain.join(" ")}`);
    const namespace = '{{ include "agent-sandbox.namespace" . }}';
    const text = [
      "- controller",
      "- --leader-elect={{ .Values.controller.leaderElect }}",
      "{{- if .Values.controller.extensions }}",
      "- --extensions",
      "{{- end }}",
      `- --webhook-namespace=${namespace}`,
      `{{- if ne (include "agent-sandbox.namespace" .) "${systemNamespace}" }}`,
      `- --router-namespace=${namespace}`,
      "{{- end }}",
      `{{- if ne .Values.webhookServiceName "${webhookServiceName}" }}`,
      "- --webhook-service-name={{ .Values.webhookServiceName }}",
      "{{- end }}",
      `{{- range $name := list ${flagValues.map((name) => JSON.stringify(name)).join(" ")} }}`,
      "{{- if hasKey $.Values.controller $name }}",
      '- {{ printf "--%s=%s" (kebabcase $name) (include "agent-sandbox.flag" (index $.Values.controller $name)) | quote }}',
      "{{- end }}",
      "{{- end }}",
      "{{- range .Values.controller.extraArgs }}",
      "- {{ . | quote }}",
      "{{- end }}",
    ].join("\n");
    return [this.#mark({ text })];
  }

  #nameService({ metadata }: Manifest): void {
    if (metadata.name === controllerName) metadata.name = "@@.Values.service.name@@";
    if (metadata.name === webhookServiceName) metadata.name = "@@.Values.webhookServiceName@@";
  }

  #mark(block: Block): string {
    this.#blocks.push(block);
    return `@@block${this.#blocks.length - 1}@@`;
  }

  #withBlocks(object: object, blocks: readonly Block[]): Record<string, unknown> {
    return Object.assign({ ...object }, ...blocks.map((block) => ({ [this.#mark(block)]: null })));
  }

  /** Fields that keep the plain manifest's value unless one is given. */
  #replaceable<T extends Record<string, unknown>>(object: T, values: Readonly<Record<string, string>>): T {
    const entries = Object.entries(object).map(([key, plain]) => {
      const value = values[key];
      return value === undefined ? [key, plain] : [this.#mark({ key, value, plain }), null];
    });
    return Object.fromEntries(entries) as T;
  }
}

function optional(key: string): Block {
  return optionalAt(key, key);
}

function optionalAt(key: string, value: string): Block {
  return { text: `{{- with .Values.${value} }}\n${key}:\n  {{- toYaml . | nindent @@indent@@ }}\n{{- end }}` };
}

function printBlock(block: Block, indent: string): string {
  const text = "text" in block ? block.text : replaceableText(block);
  const nested = String(indent.length + 2);
  return `${text
    .replaceAll("@@indent@@", nested)
    .split("\n")
    .map((line) => (line.startsWith("{{-") ? line : indent + line))
    .join("\n")}\n`;
}

function replaceableText({ key, value, plain }: Exclude<Block, { readonly text: string }>): string {
  const printed = stringify({ [key]: plain }, { lineWidth: 0 }).trimEnd();
  return `{{- if .Values.${value} }}\n${key}:\n  {{- toYaml .Values.${value} | nindent @@indent@@ }}\n{{- else }}\n${printed}\n{{- end }}`;
}

/** When an object is rendered; undefined: always. */
function conditionOf({ kind, metadata, roleRef }: Manifest): string | undefined {
  if (kind === "Namespace") return ".Values.namespace.create";
  if (metadata.name.startsWith("sandbox-router")) return ".Values.router.enabled";
  if (kind === "ClusterRoleBinding" && roleRef?.name.endsWith("-extensions") === true)
    return ".Values.controller.extensions";
  return undefined;
}

/** The object with the namespace of the values wherever it names ours. */
function namespaced(value: unknown): unknown {
  if (value === systemNamespace) return '@@include "agent-sandbox.namespace" .@@';
  if (Array.isArray(value)) return value.map(namespaced);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, child]) => [key, namespaced(child)]));
}
