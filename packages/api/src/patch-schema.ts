/** What strategic merge patch reads of a schema; `spec/builtin/definitions.json` is made of these. */
export interface PatchSchemaNode {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, PatchSchemaNode>>;
  readonly items?: PatchSchemaNode;
  readonly additionalProperties?: PatchSchemaNode;
  readonly "x-kubernetes-patch-strategy"?: string;
  readonly "x-kubernetes-patch-merge-key"?: string;
}

/** How one field merges. */
interface FieldMeta {
  /** Whether lists merge instead of being replaced. */
  readonly merges: boolean;
  /** Whether an object is replaced instead of being merged. */
  readonly replaces: boolean;
  /** The key by which items of a merging list of objects are matched. */
  readonly mergeKey: string | undefined;
  /** Schema of the field's object, or of its list's items. */
  readonly schema: PatchSchema;
}

/** A place in a set of definitions. Unknown fields have no metadata: objects merge and lists are replaced. */
export class PatchSchema {
  readonly #definitions: Readonly<Record<string, PatchSchemaNode>>;
  readonly #node: PatchSchemaNode | undefined;

  constructor(definitions: Readonly<Record<string, PatchSchemaNode>>, node: PatchSchemaNode | undefined) {
    this.#definitions = definitions;
    this.#node = resolve(definitions, node);
  }

  /** The schema of a definition by name. */
  static of(definitions: Readonly<Record<string, PatchSchemaNode>>, name: string): PatchSchema {
    return new PatchSchema(definitions, { $ref: `#/definitions/${name}` });
  }

  /** How the field of that name merges. */
  field(name: string): FieldMeta {
    const properties = this.#node?.properties;
    const declared = properties !== undefined && Object.hasOwn(properties, name) ? properties[name] : undefined;
    const field = declared ?? this.#node?.additionalProperties;
    const strategies = field?.["x-kubernetes-patch-strategy"]?.split(",") ?? [];
    const resolved = resolve(this.#definitions, field);
    return {
      merges: strategies.includes("merge"),
      replaces: strategies.includes("replace"),
      mergeKey: field?.["x-kubernetes-patch-merge-key"],
      schema: new PatchSchema(this.#definitions, resolved?.items ?? resolved),
    };
  }
}

function resolve(
  definitions: Readonly<Record<string, PatchSchemaNode>>,
  node: PatchSchemaNode | undefined,
): PatchSchemaNode | undefined {
  return node?.$ref === undefined ? node : definitions[node.$ref.slice(node.$ref.lastIndexOf("/") + 1)];
}
