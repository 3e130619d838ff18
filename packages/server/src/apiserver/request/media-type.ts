import { notAcceptable } from "@agent-sandbox/api";

/** A media type with its parameters, all in lower case but the parameter values. */
export interface MediaType {
  readonly type: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly quality: number;
}

/** How an answer is written. */
export interface AnswerFormat {
  readonly encoding: "json" | "yaml";
  /** Set when the client asked for another shape than the objects themselves. */
  readonly as?: "Table" | "PartialObjectMetadata" | "PartialObjectMetadataList" | "APIGroupDiscoveryList";
  readonly version?: string;
}

const shapes = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"] as const;
const jsonFormat: AnswerFormat = { encoding: "json" };

/** Parses `Accept` or `Content-Type`; the best quality comes first, then the order of the header. */
export function parseMediaTypes(header: string): MediaType[] {
  const types = header.split(",").map(parseMediaType);
  return types.filter((type) => type.type !== "").sort((a, b) => b.quality - a.quality);
}

function parseMediaType(text: string): MediaType {
  const [type = "", ...rest] = text.split(";").map((part) => part.trim());
  const parameters: Record<string, string> = {};
  for (const part of rest) {
    const equals = part.indexOf("=");
    if (equals > 0) parameters[part.slice(0, equals).toLowerCase()] = part.slice(equals + 1).replaceAll('"', "");
  }
  const quality = Number(parameters["q"] ?? "1");
  return { type: type.toLowerCase(), parameters, quality: Number.isFinite(quality) ? quality : 0 };
}

/** The first acceptable answer format; throws NotAcceptable (406) when there is none. */
export function negotiate(accept: string | undefined): AnswerFormat {
  if (accept === undefined || accept === "" || accept === "application/json") return jsonFormat;
  for (const candidate of parseMediaTypes(accept)) {
    const format = formatOf(candidate);
    if (format !== undefined) return format;
  }
  throw notAcceptable(
    "only the following media types are accepted: application/json, application/yaml, application/json;stream=watch",
  );
}

function formatOf({ type, parameters }: MediaType): AnswerFormat | undefined {
  const encoding = encodingOf(type);
  if (encoding === undefined) return undefined;
  const wanted = parameters["as"];
  if (wanted === undefined) return { encoding };
  const as = shapes.find((shape) => shape === wanted);
  const version = parameters["v"] ?? "v1";
  const isMeta = parameters["g"] === "meta.k8s.io" && (version === "v1" || version === "v1beta1");
  const isDiscovery = parameters["g"] === "apidiscovery.k8s.io" && (version === "v2" || version === "v2beta1");
  if (as === undefined || !(as === "APIGroupDiscoveryList" ? isDiscovery : isMeta)) return undefined;
  return { encoding, as, version };
}

function encodingOf(type: string): "json" | "yaml" | undefined {
  if (type === "application/json" || type === "*/*" || type === "application/*") return "json";
  return type === "application/yaml" ? "yaml" : undefined;
}
