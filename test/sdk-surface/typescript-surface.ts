import path from "node:path";
import {
  API,
  type Checker,
  type Project,
  SignatureKind,
  SymbolFlags,
  type Type,
  type Symbol as TypeScriptSymbol,
} from "typescript/unstable/sync";
import { rootDir } from "../../scripts/checkout.ts";
import type { Surface } from "./surface.ts";

const entries = ["packages/sdk/src/index.ts", "packages/sdk/src/browser.ts"];

/** Static members of every Error. */
const ofErrors: ReadonlySet<string> = new Set(["captureStackTrace", "prepareStackTrace", "stackTraceLimit"]);

/** The names that the TypeScript SDK exports, with their types, as the compiler sees them. */
export function typescriptSurface(): Surface {
  const api = new API({ cwd: rootDir });
  try {
    const config = path.join(rootDir, "test/sdk-surface/tsconfig.json");
    const project = api.updateSnapshot({ openProjects: [config] }).getProject(config);
    if (project === undefined) throw new Error(`no project ${config}`);
    return new SurfaceReader(project).read();
  } finally {
    api.close();
  }
}

class SurfaceReader {
  readonly #project: Project;
  readonly #checker: Checker;
  readonly #found = new Map<string, string>();

  constructor(project: Project) {
    this.#project = project;
    this.#checker = project.checker;
  }

  read(): Surface {
    for (const entry of entries) {
      const file = this.#project.program.getSourceFile(path.join(rootDir, entry));
      const module = file && this.#checker.getSymbolAtLocation(file);
      if (module === undefined) throw new Error(`${entry} exports nothing`);
      for (const exported of this.#checker.getExportsOfModule(module)) {
        const isAlias = (exported.flags & SymbolFlags.Alias) !== 0;
        this.#readExport(exported.name, isAlias ? this.#checker.getAliasedSymbol(exported) : exported);
      }
    }
    return this.#found;
  }

  #readExport(name: string, symbol: TypeScriptSymbol): void {
    if ((symbol.flags & (SymbolFlags.Function | SymbolFlags.Variable)) !== 0) {
      this.#readMember(name, this.#checker.getTypeOfSymbol(symbol));
      return;
    }
    this.#found.set(name, "");
    if ((symbol.flags & (SymbolFlags.Class | SymbolFlags.Interface)) === 0) return;
    const declared = this.#checker.getDeclaredTypeOfSymbol(symbol);
    const properties = this.#membersOf(declared);
    // What has nothing but optional members is an options type: its members are options of the calls that take it.
    if ((symbol.flags & SymbolFlags.Interface) !== 0 && properties.every(isOptional)) return;
    for (const member of properties) this.#readMember(`${name}.${member.name}`, this.#checker.getTypeOfSymbol(member));
    if ((symbol.flags & SymbolFlags.Class) === 0) return;
    const statics = this.#checker.getTypeOfSymbol(symbol);
    for (const member of statics === undefined ? [] : this.#membersOf(statics)) {
      if (!ofErrors.has(member.name) && (member.flags & SymbolFlags.Method) !== 0)
        this.#readMember(`${name}.${member.name}`, this.#checker.getTypeOfSymbol(member));
    }
  }

  /** What a type declares itself; what it inherits is listed with its base. */
  #membersOf(type: Type): TypeScriptSymbol[] {
    const bases = type.isClassOrInterface() ? this.#checker.getBaseTypes(type) : [];
    const inherited = new Set(bases.flatMap((base) => this.#checker.getPropertiesOfType(base)).map(({ name }) => name));
    return this.#checker.getPropertiesOfType(type).filter(({ name }) => /^[a-zA-Z]/.test(name) && !inherited.has(name));
  }

  #readMember(id: string, type: Type | undefined): void {
    if (type === undefined) throw new Error(`${id} has no type`);
    const [signature] = this.#checker.getSignaturesOfType(type, SignatureKind.Call);
    if (signature === undefined) {
      this.#found.set(id, this.#checker.typeToString(type));
      return;
    }
    const result = this.#checker.getReturnTypeOfSignature(signature);
    this.#found.set(id, result === undefined ? "" : this.#checker.typeToString(result));
    for (const parameter of signature.getParameters()) this.#readOptions(id, parameter);
  }

  #readOptions(id: string, parameter: TypeScriptSymbol): void {
    const given = this.#checker.getTypeOfSymbol(parameter);
    if (given === undefined) return;
    for (const type of given.isUnionType() ? given.getTypes() : [given]) {
      const options = this.#checker.getPropertiesOfType(type);
      // Every call of this SDK has the option `signal`.
      if (options.every(isOptional))
        for (const { name } of options) if (name !== "signal") this.#found.set(`${id}(${name})`, "");
    }
  }
}

function isOptional({ flags }: TypeScriptSymbol): boolean {
  return (flags & SymbolFlags.Optional) !== 0;
}
