import { isJsonObject, type JsonObject, splitImageReference } from "@agent-sandbox/api";
import { listAt, objectAt, stringAt } from "../json/json.ts";

/** Fills in what Kubernetes' code (not its schema) defaults in a pod's spec, in place. */
export function applyPodDefaults(spec: JsonObject): void {
  spec["restartPolicy"] ??= "Always";
  spec["dnsPolicy"] ??= "ClusterFirst";
  spec["schedulerName"] ??= "default-scheduler";
  spec["terminationGracePeriodSeconds"] ??= 30;
  // A negative time means the shortest one, as in Kubernetes.
  if (Number(spec["terminationGracePeriodSeconds"]) < 0) spec["terminationGracePeriodSeconds"] = 1;
  spec["securityContext"] ??= {};
  spec["enableServiceLinks"] ??= true;
  if (spec["serviceAccountName"] !== undefined) spec["serviceAccount"] = spec["serviceAccountName"];
  else if (spec["serviceAccount"] !== undefined) spec["serviceAccountName"] = spec["serviceAccount"];
  for (const field of ["initContainers", "containers", "ephemeralContainers"]) {
    for (const container of listAt(spec, field)) if (isJsonObject(container)) defaultContainer(container, spec);
  }
  for (const volume of listAt(spec, "volumes")) if (isJsonObject(volume)) defaultVolume(volume);
}

function defaultContainer(container: JsonObject, spec: JsonObject): void {
  container["terminationMessagePath"] ??= "/dev/termination-log";
  container["terminationMessagePolicy"] ??= "File";
  container["resources"] ??= {};
  container["imagePullPolicy"] ??= isLatest(stringAt(container, "image") ?? "") ? "Always" : "IfNotPresent";
  for (const port of listAt(container, "ports")) {
    if (!isJsonObject(port)) continue;
    port["protocol"] ??= "TCP";
    if (spec["hostNetwork"] === true && port["containerPort"] !== undefined) port["hostPort"] ??= port["containerPort"];
  }
  for (const name of ["livenessProbe", "readinessProbe", "startupProbe"]) defaultProbe(objectAt(container, name));
  for (const variable of listAt(container, "env")) {
    const field = isJsonObject(variable) ? objectAt(objectAt(variable, "valueFrom"), "fieldRef") : undefined;
    if (field !== undefined) field["apiVersion"] ??= "v1";
  }
  defaultRequests(container);
  for (const hook of ["postStart", "preStop"]) {
    const get = objectAt(objectAt(objectAt(container, "lifecycle"), hook), "httpGet");
    if (get !== undefined) defaultHttpGet(get);
  }
}

/** An image without a tag means the newest one, which must be asked for every time. */
function isLatest(image: string): boolean {
  const { tag = "latest", digest } = splitImageReference(image);
  return digest === undefined && tag === "latest";
}

/** A limit without a request is also the request. */
function defaultRequests(container: JsonObject): void {
  const resources = objectAt(container, "resources");
  const limits = objectAt(resources, "limits");
  if (resources === undefined || limits === undefined) return;
  const requests = { ...objectAt(resources, "requests") };
  for (const [name, value] of Object.entries(limits)) requests[name] ??= value;
  resources["requests"] = requests;
}

function defaultProbe(probe: JsonObject | undefined): void {
  if (probe === undefined) return;
  probe["timeoutSeconds"] ??= 1;
  probe["periodSeconds"] ??= 10;
  probe["successThreshold"] ??= 1;
  probe["failureThreshold"] ??= 3;
  const get = objectAt(probe, "httpGet");
  if (get !== undefined) defaultHttpGet(get);
  const grpc = objectAt(probe, "grpc");
  if (grpc !== undefined) grpc["service"] ??= "";
}

function defaultHttpGet(get: JsonObject): void {
  get["path"] ??= "/";
  get["scheme"] ??= "HTTP";
}

/** 0644, the mode of files that come from the API. */
const fileMode = 0o644;

const volumeSources = [
  "emptyDir",
  "hostPath",
  "secret",
  "configMap",
  "projected",
  "downwardAPI",
  "persistentVolumeClaim",
  "csi",
  "ephemeral",
  "image",
  "nfs",
];

function defaultVolume(volume: JsonObject): void {
  const hasSource = Object.keys(volume).some((key) => key !== "name");
  if (!hasSource) volume["emptyDir"] = {};
  for (const source of volumeSources) {
    const value = objectAt(volume, source);
    if (value === undefined) continue;
    if (source === "secret" || source === "configMap" || source === "downwardAPI" || source === "projected")
      value["defaultMode"] ??= fileMode;
    if (source === "hostPath") value["type"] ??= "";
    if (source === "projected") for (const item of listAt(value, "sources")) defaultProjection(item as JsonObject);
    for (const item of listAt(value, "items")) defaultItem(item as JsonObject);
  }
}

function defaultProjection(source: JsonObject): void {
  const token = objectAt(source, "serviceAccountToken");
  if (token !== undefined) token["expirationSeconds"] ??= 3600;
  for (const item of listAt(objectAt(source, "downwardAPI"), "items")) defaultItem(item as JsonObject);
}

function defaultItem(item: JsonObject): void {
  const field = objectAt(item, "fieldRef");
  if (field !== undefined) field["apiVersion"] ??= "v1";
}
