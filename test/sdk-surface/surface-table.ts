import { readFileSync } from "node:fs";
import path from "node:path";
import { parse } from "yaml";
import { rootDir } from "../../scripts/checkout.ts";

/** The languages of the SDKs. */
export const languages = ["typescript", "python", "go"] as const;
export type Language = (typeof languages)[number];

/** A name with what differs from the rule of a language. */
interface Row extends Partial<Record<Language, string | undefined>> {
  readonly because?: string | undefined;
}

interface Option extends Row {
  readonly name: string;
  readonly unit?: "duration";
}

interface Options {
  /** How Go spells them: `With`, a struct whose fields they are, or `-` where they are arguments. */
  readonly go: string;
  readonly sets?: readonly string[];
  readonly own?: readonly Option[];
  readonly without?: readonly string[];
}

interface Member extends Row {
  readonly type?: string;
  readonly options?: Options;
  readonly fails?: readonly string[];
}

interface Section extends Row {
  readonly type: string;
  readonly members: Readonly<Record<string, Member>>;
}

interface Table {
  readonly types: Readonly<Record<string, Readonly<Record<Language, readonly string[]>>>>;
  readonly failures: Readonly<Record<string, readonly string[]>>;
  readonly reserved: readonly string[];
  readonly optionSets: Readonly<Record<string, readonly Option[]>>;
  readonly sections: readonly Section[];
  readonly only: Readonly<Record<Language, readonly { readonly names: readonly string[]; readonly because: string }[]>>;
}

/** The table of spec/sdk-surface.yaml. */
export function readTable(): Table {
  return parse(readFileSync(path.join(rootDir, "spec/sdk-surface.yaml"), "utf8")) as Table;
}

/** One line of the table as one language has it. */
export interface Expected {
  readonly id: string;
  /** Accepted spellings of its type; undefined where the table names none. */
  readonly types: readonly string[] | undefined;
}

/** What a language must export, by name. */
export function expectedSurface(table: Table, language: Language): Map<string, Expected> {
  const found = new Map<string, Expected>();
  const add = (id: string, types?: readonly string[]): void => void found.set(id, { id, types });
  for (const section of table.sections) {
    const owner = section[language] ?? section.type;
    add(owner);
    for (const [name, member] of Object.entries(section.members)) {
      const id = memberId(owner, name, member, language);
      if (id !== undefined) add(id, typesOf(table, member.type, language));
      for (const option of optionsOf(table, member)) {
        const optional = optionId(id, option, member.options?.go ?? "-", language);
        if (optional !== undefined) add(optional);
      }
    }
  }
  for (const { names } of table.only[language]) for (const name of names) add(name);
  return found;
}

/** The rows that differ from the rule of a language and give no reason. */
export function unexplained(table: Table): string[] {
  const isSilent = (row: Row): boolean => languages.some((one) => row[one] !== undefined) && row.because === undefined;
  return table.sections.flatMap((section) => {
    // A leading dot alone says that a function stands beside the type, as all constructors of Go do.
    const rows = Object.entries(section.members).flatMap(([name, member]): [string, Row][] => [
      [name, { ...member, ...(member.go?.startsWith(".") === true && { go: undefined }) }],
      ...optionsOf(table, member).map((option): [string, Row] => [
        `${name}(${option.name})`,
        { because: member.because, ...option },
      ]),
    ]);
    const silent = rows.filter(([, row]) => isSilent({ because: section.because, ...row }));
    return [...(isSilent(section) ? [section.type] : []), ...silent.map(([name]) => `${section.type}.${name}`)];
  });
}

/** Every error code that the table says some call fails with. */
export function failureCodes(table: Table): Set<string> {
  const rows = table.sections.flatMap(({ members }) => Object.values(members));
  return new Set(rows.flatMap(({ fails = [] }) => fails.flatMap((one) => table.failures[one] ?? [one])));
}

/** Calls whose failures the table does not tell: those that have options or give nothing. */
export function withoutFailures(table: Table): string[] {
  return table.sections.flatMap(({ type, members }) =>
    Object.entries(members)
      .filter(([, { type: result, options, fails }]) => (options ?? result === "nothing") && fails === undefined)
      .map(([name]) => `${type}.${name}`),
  );
}

function optionsOf(table: Table, { options }: Member): Option[] {
  if (options === undefined) return [];
  const { sets = [], own = [], without = [] } = options;
  const shared = sets.flatMap((set) => table.optionSets[set] ?? []);
  return [...shared, ...own].filter(({ name }) => !without.includes(name));
}

function memberId(owner: string, name: string, member: Member, language: Language): string | undefined {
  const own = member[language] ?? spelled(name, language);
  if (own === "-") return undefined;
  return own.startsWith(".") ? own.slice(1) : `${owner}.${own}`;
}

function optionId(call: string | undefined, option: Option, go: string, language: Language): string | undefined {
  const own = option[language];
  if (own === "-") return undefined;
  if (language === "go") {
    const name = own ?? spelled(option.name, "go");
    return go === "-" ? undefined : go === "With" ? `With${name}` : `${go}.${name}`;
  }
  const unit = language === "typescript" && option.unit === "duration" ? "Ms" : "";
  return call && `${call}(${own ?? spelled(option.name, language) + unit})`;
}

const initialisms: Readonly<Record<string, string>> = {
  Id: "ID",
  Url: "URL",
  Uid: "UID",
  Gid: "GID",
  Ttl: "TTL",
  Cpu: "CPU",
};

/** A camelCase name as a language writes it. */
function spelled(name: string, language: Language): string {
  if (language === "typescript") return name;
  if (language === "python") return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const words = name.replace(/^./, (letter) => letter.toUpperCase()).match(/[A-Z][a-z0-9]*/g) ?? [];
  return words.map((word) => initialisms[word] ?? word).join("");
}

function typesOf(table: Table, type: string | undefined, language: Language): readonly string[] | undefined {
  return type === undefined ? undefined : (table.types[type]?.[language] ?? [type]);
}
